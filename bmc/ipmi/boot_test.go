package ipmi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

func hexBytes(words []string) []byte {
	var out []byte
	for _, w := range words {
		n, err := strconv.ParseUint(strings.TrimPrefix(w, "0x"), 16, 8)
		if err != nil {
			panic(err)
		}
		out = append(out, byte(n))
	}
	return out
}

func bootParam(flags, device byte) string {
	return fmt.Sprintf("Boot parameter version: 1\nBoot parameter 5 is valid/unlocked\nBoot parameter data: %02x%02x000000\n Boot Flags :\n", flags, device)
}

func asSent(b byte, _ string) byte { return b }

// Case 47: what was asked for is stored, all of it, or the call fails.
func TestBootFlagsAreWhole(t *testing.T) {
	lastWordOnly := func(b byte, options string) byte { // builds of ipmitool from 2018 and 2019
		if strings.HasSuffix(options, "persistent") {
			return b &^ 0x20
		}
		return b
	}
	for name, test := range map[string]struct {
		args          string
		lose          func(byte, string) byte
		flags, device byte
		form          string
	}{
		"disk persistent uefi":             {`["disk",{"persistent":true,"uefi":true}]`, asSent, 0xe0, 0x08, "bootdev"},
		"an ipmitool that loses the EFI":   {`["disk",{"persistent":true,"uefi":true}]`, lastWordOnly, 0xe0, 0x08, "raw"},
		"an ipmitool that loses lastingly": {`["disk",{"persistent":true,"uefi":true}]`, func(b byte, _ string) byte { return b &^ 0x40 }, 0xe0, 0x08, "raw"},
		"a flag that stays invalid":        {`["pxe",{"uefi":true}]`, func(b byte, _ string) byte { return b &^ 0x80 }, 0xa0, 0x04, "raw"},
		"pxe once uefi":                    {`["pxe",{"uefi":true}]`, asSent, 0xa0, 0x04, "bootdev"},
		"pxe once legacy":                  {`["pxe",{"uefi":false}]`, asSent, 0x80, 0x04, "bootdev"},
		"named arguments":                  {`{"device":"cd","uefi":true}`, asSent, 0xa0, 0x14, "bootdev"},
		"setup":                            {`["bios",{"uefi":true}]`, asSent, 0xa0, 0x18, "bootdev"},
		"none":                             {`["none",{"uefi":true}]`, asSent, 0xa0, 0x00, "bootdev"},
		"hdd":                              {`["hdd",{"persistent":true,"uefi":false}]`, asSent, 0xc0, 0x08, "bootdev"},
	} {
		t.Run(name, func(t *testing.T) {
			var flags, device byte
			r, s := newScripted(t, bootScript(&flags, &device, test.lose, ""))
			var result driver.BootResult
			if err := json.Unmarshal(r.must(t, "management", "setBootDevice", test.args), &result); err != nil {
				t.Fatal(err)
			}
			if flags != test.flags || device != test.device || result.Form != test.form {
				t.Errorf("the BMC stores %02x %02x by %s, want %02x %02x by %s", flags, device, result.Form, test.flags, test.device, test.form)
			}
			if s.ran[len(s.ran)-1] == "" || s.times("raw 0x00 0x08 0x03 0x1f") != 1 {
				t.Errorf("the timer of the flags was not cleared: %q", s.ran)
			}
		})
	}
}

// A machine of unknown mode keeps the EFI bit that its BMC has.
func TestBootModeIsKept(t *testing.T) {
	for _, before := range []byte{0xa0, 0x20, 0x80, 0} {
		flags, device := before, byte(0)
		r, _ := newScripted(t, bootScript(&flags, &device, asSent, ""))
		raw := string(r.must(t, "management", "setBootDevice", `["pxe"]`))
		if flags&0x20 != before&0x20 || flags&0x80 == 0 {
			t.Errorf("%02x became %02x", before, flags)
		}
		if legacy := before&0x20 == 0; legacy != strings.Contains(raw, "legacy mode") {
			t.Errorf("%02x: nothing, or too much, was said: %s", before, raw)
		}
	}
}

// Flags that a BMC cannot show (OpenBMC, after Redfish set a device that IPMI has no word for) are of unknown mode, and are
// replaced all the same; the timer of the flags may be a BMC's secret.
func TestBootFlagsThatCannotBeRead(t *testing.T) {
	flags, device, hidden := byte(0), byte(0), true
	inner := bootScript(&flags, &device, asSent, "")
	r, _ := newScripted(t, func(c string, x command) answer {
		switch {
		case strings.HasPrefix(c, "raw 0x00 0x08 0x03"):
			return failing("Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x8 rsp=0x80): Unknown (0x80)")
		case strings.HasPrefix(c, "chassis bootparam get") && hidden:
			return failing("Get Chassis Boot Parameter 5 failed: Unspecified error")
		}
		hidden = false // what was written is in IPMI's words
		return inner(c, x)
	})
	raw := string(r.must(t, "management", "setBootDevice", `["pxe"]`))
	if flags != 0x80 || device != 0x04 || !strings.Contains(raw, "legacy mode") {
		t.Errorf("the BMC stores %02x %02x: %s", flags, device, raw)
	}
}

// A stale flag stays readable: the parameter's own mark and the flags' bit must both say valid.
func TestBootFlagsReadBack(t *testing.T) {
	for text, want := range map[string]bootFlags{
		bootParam(0xe0, 0x08): {valid: true, persistent: true, efi: true, code: 2},
		bootParam(0x20, 0x04): {efi: true, code: 1},
		strings.Replace(bootParam(0xa0, 0x04), "valid/unlocked", "invalid/locked", 1): {efi: true, code: 1},
	} {
		if got, ok := parseBootFlags(text); !ok || got != want {
			t.Errorf("%q reads as %+v, want %+v", text, got, want)
		}
	}
	for _, text := range []string{"", "Boot parameter data: ", "Boot parameter data: zz", "Boot parameter data: e0", "Boot parameter data: " + strings.Repeat("00", 17)} {
		if got, ok := parseBootFlags(text); ok {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
}

func TestBootRefusals(t *testing.T) {
	var flags, device byte
	r, _ := newScripted(t, bootScript(&flags, &device, asSent, "Set Chassis Boot Parameter 5 failed: Command response could not be provided"))
	e := r.refused(t, "management", "setBootDevice", `["pxe",{"uefi":true}]`, driver.CodeBMCError)
	if !e.Retryable || !strings.Contains(e.Message, "could not be provided") {
		t.Errorf("got %+v", e)
	}
	r, _ = newScripted(t, func(c string, _ command) answer {
		if strings.HasPrefix(c, "chassis bootparam") {
			return failing("Get Chassis Boot Parameter 5 failed: Unspecified error")
		}
		return answer{stdout: "Set Boot Device to pxe\n"}
	})
	r.refused(t, "management", "setBootDevice", `["pxe",{"uefi":true}]`, driver.CodeBMCError)
	for _, args := range []string{`["usb"]`, `[]`, `["pxe",{"efi":true}]`, `["pxe options=help"]`} {
		r.refused(t, "management", "setBootDevice", args, driver.CodeInvalidArgs)
	}
	r.refused(t, "management", "probe", `[]`, driver.CodeUnsupported)
	r.refused(t, "management", "rotateCredential", `["x"]`, driver.CodeUnsupported)
}

// The same against a real ipmitool and a BMC that loses bits.
func TestBootFlagsLostByTheBMC(t *testing.T) {
	needTool(t)
	for mask, code := range map[byte]string{0xff: "", 0xdf: driver.CodeNotApplied, 0xbf: driver.CodeNotApplied, 0x7f: driver.CodeNotApplied} {
		b := bmctest.NewIPMI(t, bmctest.IPMIConfig{})
		b.KeepFlags(mask)
		r := newRig(t, unhurried, b.Address(), "")
		_, e := r.call(t.Context(), "management", "setBootDevice", `["disk",{"persistent":true,"uefi":true}]`)
		if (e == nil) != (code == "") || e != nil && e.Code != code {
			t.Errorf("mask %02x: got %v", mask, e)
		}
		if stored := b.BootFlags(); e == nil && stored != [2]byte{0xe0, 0x08} {
			t.Errorf("the BMC stores %02x", stored)
		}
		if e != nil && !strings.Contains(e.Message, "disk, continuous, UEFI") {
			t.Errorf("the message does not say what was asked: %s", e.Message)
		}
	}
}
