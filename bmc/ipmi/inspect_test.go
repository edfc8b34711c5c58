package ipmi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// machine is an ipmitool that answers about a machine; over replaces answers.
func machine(over map[string]answer) func(string, command) answer {
	all := map[string]answer{
		"chassis power status": {stdout: statusOn},
		"fru print 0":          {stdout: " Board Mfg             : ACME\n Board Product         : Board 7\n Board Serial          : B1\n Product Manufacturer  : ACME Corp\n Product Name          : Server 9\n Product Serial        : S1\n"},
		"mc info":              {stdout: "Firmware Revision         : 7.00\nManufacturer ID           : 674\nManufacturer Name         : Dell Inc.\nProduct ID                : 256 (0x0100)\n"},
		"mc guid":              {stdout: "System GUID   : 4C4C4544-0042-3010-8031-C7C04F313233\nGUID Encoding : SMBIOS\n"},
		"lan print":            {stdout: "IP Address Source       : Static Address\nIP Address              : 192.0.2.50\nMAC Address             : 00:00:5E:00:53:BC\n"},
		"sdr info":             {stdout: "SDR Version                         : 0x51\nRecord Count                        : 3\n"},
		"sdr list":             {stdout: "CPU1 Temp        | 41 degrees C      | ok\nFAN A            | 0 RPM             | nr\nSEL              | Not Readable      | ns\n"},
	}
	for k, v := range over {
		all[k] = v
	}
	return func(c string, _ command) answer {
		if a, known := all[c]; known {
			return a
		}
		return failing("unexpected command " + c)
	}
}

func (r *rig) inspect(t *testing.T) driver.Inventory {
	t.Helper()
	var inv driver.Inventory
	if err := json.Unmarshal(r.must(t, "inspect", "inspect", `[]`), &inv); err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestInspection(t *testing.T) {
	r, s := newScripted(t, machine(nil))
	raw := string(r.must(t, "inspect", "inspect", `[]`))
	want := `{"manufacturer":"ACME Corp","model":"Server 9","serialNumber":"S1","power":"on","macs":[],"ipAddresses":[],` +
		`"productUuid":"4c4c4544-0042-3010-8031-c7c04f313233","board":{"manufacturer":"ACME","product":"Board 7","serial":"B1"},` +
		`"bmc":{"firmware":"7.00","manufacturer":"Dell Inc.","mac":"00:00:5e:00:53:bc","ipAddress":"192.0.2.50"},` +
		`"sensors":{"count":3,"ok":1,"problems":["FAN A"]}}`
	if raw != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	for _, c := range s.ran {
		if c == "fru print" || c == "fru" || strings.HasPrefix(c, "sensor") || c == "sdr" || strings.HasPrefix(c, "sdr elist") {
			t.Errorf("%q ran, which erases an empty sensor repository", c)
		}
	}
}

func TestInspectionWithoutThis(t *testing.T) {
	failed := failing("Invalid command")
	for name, test := range map[string]struct {
		over  map[string]answer
		code  string // the operation fails
		check func(driver.Inventory) bool
	}{
		"power":           {over: map[string]answer{"chassis power status": failed}, code: driver.CodeBMCError},
		"FRU":             {over: map[string]answer{"fru print 0": failed}, code: driver.CodeBMCError},
		"FRU not present": {over: map[string]answer{"fru print 0": {stdout: " Device not present (Requested sensor, data, or record not found)\n", exit: 1}}, code: driver.CodeBMCError},
		"FRU, busy":       {over: map[string]answer{"fru print 0": {stdout: " Device not present (Node busy)\n", exit: 1}}, code: driver.CodeBusy},
		"FRU, crashed":    {over: map[string]answer{"fru print 0": {stdout: " Board Mfg             : ACME\n", signal: "segmentation fault", exit: -1}}, check: func(i driver.Inventory) bool { return i.Manufacturer == "ACME" && len(i.Warnings) == 1 }},
		"FRU, crashed at once": {over: map[string]answer{"fru print 0": {signal: "segmentation fault", exit: -1}}, check: func(i driver.Inventory) bool {
			return i.Manufacturer == "" && len(i.Warnings) == 1 && i.ProductUUID != ""
		}},
		"FRU good, exit 1": {over: map[string]answer{"fru print 0": {stdout: " Product Name          : X\n", exit: 1}}, check: func(i driver.Inventory) bool { return i.Model == "X" && i.Warnings == nil }},
		"FRU says nothing": {over: map[string]answer{"fru print 0": {stdout: "\n"}}, check: func(i driver.Inventory) bool { return i.Model == "" && len(i.Warnings) == 1 }},
		"mc info":          {over: map[string]answer{"mc info": failed}, check: func(i driver.Inventory) bool { return i.BMC.Firmware == "" && i.BMC.MAC != "" && len(i.Warnings) == 1 }},
		"mc guid":          {over: map[string]answer{"mc guid": failed}, check: func(i driver.Inventory) bool { return i.ProductUUID == "" && len(i.Warnings) == 1 }},
		"lan print":        {over: map[string]answer{"lan print": failed}, check: func(i driver.Inventory) bool { return i.BMC.MAC == "" && i.BMC.Firmware != "" && len(i.Warnings) == 1 }},
		"neither of these": {over: map[string]answer{"lan print": failed, "mc info": failed}, check: func(i driver.Inventory) bool { return i.BMC == nil && len(i.Warnings) == 2 }},
		"sdr info":         {over: map[string]answer{"sdr info": failed, "sdr list": {stdout: "x | y | ok\n"}}, check: func(i driver.Inventory) bool { return i.Sensors == nil && len(i.Warnings) == 1 }},
		"sdr list":         {over: map[string]answer{"sdr list": failed}, check: func(i driver.Inventory) bool { return i.Sensors == nil && len(i.Warnings) == 1 }},
		"sensor records":   {over: map[string]answer{"sdr info": {stdout: "Record Count                        : 0\n"}}, check: func(i driver.Inventory) bool { return i.Sensors == nil && i.Warnings == nil }},
		"a record count":   {over: map[string]answer{"sdr info": {stdout: "Record Count                        : many\n"}}, check: func(i driver.Inventory) bool { return i.Sensors == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newScripted(t, machine(test.over))
			if test.code != "" {
				r.refused(t, "inspect", "inspect", `[]`, test.code)
				return
			}
			if inv := r.inspect(t); !test.check(inv) {
				t.Errorf("got %+v", inv)
			}
			if over, changed := test.over["sdr info"]; changed && s.times("sdr list") > 0 {
				t.Errorf("the sensors were listed after %+v", over)
			}
		})
	}
}

func TestFRUText(t *testing.T) {
	for text, want := range map[string][3]string{ // manufacturer, model, serial
		" Product Manufacturer  : A\n Product Name          :  \n Product Part Number   : PN\n Product Serial        : NONE\n Board Serial          : BS\n": {"A", "PN", "BS"},
		" Board Mfg             : B\n Board Product         : P\n Chassis Serial        : CS\n":                                                             {"B", "P", "CS"},
		" Product Name          : Name\r\nFake Key : injected\n Product Name          : Other\n Product Serial        : S3\a\x7f\n":                         {"", "Name", "S3"},
		" Board Serial          : B1\x1b[31mred\x1b[0m\n Product Name          : a\tb\xff\n":                                                                {"", "a b\ufffd", "B1red"},
		" Product Name          : To be filled by O.E.M.\n Board Product         : Default string\n Product Serial        : 0123456789\n":                   {"", "", ""},
		" Product Name          : a\u202eb : c\n Product Serial        : " + strings.Repeat("x", 300) + "\n":                                                {"", "ab : c", strings.Repeat("x", 128) + "…"},
	} {
		f := parseFRU(text)
		if got := [3]string{f.manufacturer(), f.model(), f.serial()}; got != want {
			t.Errorf("%q reads as %q, want %q", text, got, want)
		}
	}
	r, _ := newScripted(t, machine(map[string]answer{"fru print 0": {stdout: " Product Name          : A\n Product Serial        : real\n Product Serial        : fake\n"}}))
	if inv := r.inspect(t); inv.SerialNumber != "real" || len(inv.Warnings) != 1 || !strings.Contains(inv.Warnings[0], "Product Serial") {
		t.Errorf("got %+v", inv)
	}
}

func TestGUIDs(t *testing.T) {
	for in, want := range map[string]string{
		"System GUID   : 4C4C4544-0042-3010-8031-C7C04F313233":  "4c4c4544-0042-3010-8031-c7c04f313233",
		"System GUID  : 4c4c4544-0042-3010-8031-c7c04f313233\r": "4c4c4544-0042-3010-8031-c7c04f313233",
		"System GUID   : C2A9B0F13E7D554AB7AA0123456789AB":      "c2a9b0f1-3e7d-554a-b7aa-0123456789ab",
		"System GUID   : 000000000000000000000CC47AAABBCC":      "00000000-0000-0000-0000-0cc47aaabbcc",
		"System GUID   : 00000000000000000000000000000000":      "",
		"System GUID  : 00000000-0000-0000-0000-000000000000":   "",
		"System GUID  : FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF":   "",
		"System GUID  : 03000200-0400-0500-0006-000700080009":   "",
		"System GUID  : 4c4c4544-0042-3010-8031-c7c04f31323":    "",
		"System GUID  : 4c4c4544-00423010-8031-c7c04f313233-0":  "",
		"System GUID  : 4c4c4544-0042-3010-8031-c7c04f31323g":   "",
		"GUID : 4c4c4544-0042-3010-8031-c7c04f313233":           "",
		"": "",
	} {
		if got := parseGUID(in); got != want {
			t.Errorf("%q reads as %q, want %q", in, got, want)
		}
	}
}

func TestLAN(t *testing.T) {
	for in, want := range map[string][2]string{
		"IP Address Source       : DHCP\nIP Address              : 192.0.2.37\nMAC Address             : 00:00:5E:00:53:01\n": {"00:00:5e:00:53:01", "192.0.2.37"},
		"IP Address              : 0.0.0.0\nMAC Address             : 00:00:00:00:00:00\n":                                    {"", ""},
		"IP Address              : 192.0.2.1\nIP Address              : 192.0.2.2\n":                                          {"", "192.0.2.1"},
		"MAC Address             : ff:ff:ff:ff:ff:ff\nIP Address              : 255.255.255.255\n":                            {"", ""},
		"MAC Address             : 00:00:5e:00:53\nIP Address              : x\n":                                             {"", ""},
	} {
		mac, ip := parseLAN(in)
		if got := [2]string{mac, ip}; got != want {
			t.Errorf("%q reads as %q, want %q", in, got, want)
		}
	}
}

func TestSensors(t *testing.T) {
	s := parseSensors("A | B | 1 | ok\nUnable to send command: Invalid argument\nX | Y |\n | 0x00 | cr\nC | x | ns\nD|E|bad status\n" + strings.Repeat("P | 1 | nc\n", 50))
	if s.Count != 53 || s.OK != 1 || len(s.Problems) != 32 || s.Problems[0] != "unnamed" {
		t.Errorf("got %+v", s)
	}
	if p := parseSensors("").Problems; p == nil {
		t.Error("problems must be a list")
	}
}

func TestMakers(t *testing.T) {
	for in, want := range map[string]string{
		"Manufacturer ID : 10876\nManufacturer Name : Super Micro Computer Inc.\n": "Super Micro Computer Inc.",
		"Manufacturer ID : 10876\nManufacturer Name : Unknown (0x2A7C)\n":          "Supermicro",
		"Manufacturer ID : 64999\nManufacturer Name : Unknown\n":                   "IANA 64999",
		"Manufacturer ID : 0\nManufacturer Name : Unknown\n":                       "",
		"Manufacturer ID : 16777215\nManufacturer Name : Unknown (0xFFFFFF)\n":     "", // ipmitool 1.8.19
		"Manufacturer ID : 1048575\nManufacturer Name : Unknown (0xFFFFF)\n":       "", // and 1.8.18, of the same BMC
		"Manufacturer ID : 15739516\nManufacturer Name : Unknown (0xF02A7C)\n":     "Supermicro",
		"Manufacturer ID : many\nManufacturer Name : Unknown\n":                    "",
	} {
		if got := parseMC(in).maker; got != want {
			t.Errorf("%q is made by %q, want %q", in, got, want)
		}
	}
}

// What ipmitool says beside an answer is no failure, and no answer.
func TestNoiseIsNoFailure(t *testing.T) {
	for name, noise := range map[string]string{
		"a BMC without Get Channel Cipher Suites": "Unable to Get Channel Cipher Suites\n",
		"no IANA registry":                        "IANA PEN registry open failed: No such file or directory\nFailed to load entries from IANA PEN Registry\n",
		"Close Session refused":                   "Failed to Close Session: invalid session ID 11223302\n",
	} {
		quiet := machine(nil)
		r, _ := newScripted(t, func(c string, x command) answer {
			a := quiet(c, x)
			a.stderr = noise + a.stderr
			return a
		})
		if p := string(r.must(t, "power", "getPower", `[]`)); p != `{"power":"on"}` {
			t.Errorf("%s: the power is %s", name, p)
		}
		if inv := r.inspect(t); inv.SerialNumber != "S1" || inv.BMC.Manufacturer != "Dell Inc." || inv.Warnings != nil {
			t.Errorf("%s: got %+v", name, inv)
		}
		deaf, _ := newScripted(t, func(string, command) answer { return failing(noise + "Get Chassis Power Status failed: Node busy") })
		if e := deaf.refused(t, "power", "getPower", `[]`, driver.CodeBusy); !strings.HasSuffix(e.Message, "Get Chassis Power Status failed: Node busy") {
			t.Errorf("%s: a failure reads as %q", name, e.Message)
		}
	}
}

// The same against a real ipmitool and BMC; an empty repository is never listed, so never erased.
func TestInspectionOfABMC(t *testing.T) {
	needTool(t)
	for _, empty := range []bool{false, true} {
		b := bmctest.NewIPMI(t, bmctest.IPMIConfig{NoSensors: empty})
		r := newRig(t, unhurried, b.Address(), "")
		inv := r.inspect(t)
		if inv.Manufacturer != "ACME" || inv.Model != "Server 9" || inv.SerialNumber != "SN0001" || inv.ProductUUID != bmctest.IPMIGUID {
			t.Errorf("the machine is %+v", inv)
		}
		if inv.BMC == nil || inv.BMC.Firmware != "2.15" || inv.BMC.MAC != "00:00:5e:00:53:bc" || !strings.HasPrefix(inv.BMC.Manufacturer, "Dell") {
			t.Errorf("the BMC is %+v", inv.BMC)
		}
		if empty != (inv.Sensors == nil) || inv.Sensors != nil && inv.Sensors.Count != 2 {
			t.Errorf("the sensors are %+v", inv.Sensors)
		}
		for _, c := range b.Commands() {
			if strings.HasPrefix(c, "0a/27") {
				t.Errorf("the sensor repository was erased: %s", c)
			}
		}
	}
	b := bmctest.NewIPMI(t, bmctest.IPMIConfig{FRU: []byte{1, 0, 0, 0, 0, 0, 0, 0xff}})
	b.Refuse("06/37", 0xc1)
	b.Refuse("0c/02", 0xc1)
	inv := newRig(t, unhurried, b.Address(), "").inspect(t)
	if len(inv.Warnings) < 2 || inv.ProductUUID != "" || inv.Power != driver.PowerOn {
		t.Errorf("got %+v", inv)
	}
}
