package webtest

import (
	"context"
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// Hostile is text as it comes from the wire when somebody means ill.
const Hostile = `"><img src=x onerror=alert(1)><script>alert(2)</script>` + "\x1b[31m" + ` O'Brien`

// Demo fills a site with machines in several states, so that every page has something to show. Where text comes from the
// wire it is wire.
func Demo(x *Site, wire string) {
	x.T.Helper()
	ctx, now := context.Background(), time.Now().UTC()
	must := func(err error) {
		x.T.Helper()
		if err != nil {
			x.T.Fatal(err)
		}
	}
	for i, o := range []app.KexecOutcome{app.KexecWorked, app.KexecSilent} {
		must(x.Store.PutKexecTrial(ctx, &app.KexecTrial{Attempt: "wf:w-9:kexec#" + strconv.Itoa(i), Make: app.KexecMake(&app.Machine{Vendor: "Contoso", Model: "R640 " + wire}), Image: "debian-12 " + wire, Machine: "rack1-node9", Outcome: o,
			Sentence: map[app.KexecOutcome]string{app.KexecSilent: "nothing was heard of the system " + wire}[o], Time: now.Add(time.Duration(-i) * time.Hour)}))
	}
	must(x.Store.PutProfile(ctx, &app.Profile{Name: "r640", Description: "two sockets " + wire, KexecOK: true, Drivers: map[string]app.Binding{"power": {Driver: "redfish"}}, Updated: now}))
	must(x.Secrets.Put(ctx, "bmc", secret.Login("root", Password)))
	must(x.Store.PutPool(ctx, &app.Pool{Name: "compute", Description: wire, Policy: app.PoolPolicy{HardwareProfile: "r640"}, Updated: now}))
	must(x.Store.SetSetting(ctx, "site.name", "Row B "+wire))
	must(x.Store.PutSubnet(ctx, &app.Subnet{ID: "net-1", CIDR: netip.MustParsePrefix("192.0.2.0/24"), Interface: "eno2", Mode: "full", PoolStart: netip.MustParseAddr("192.0.2.100"),
		PoolEnd: netip.MustParseAddr("192.0.2.199"), Gateway: netip.MustParseAddr("192.0.2.1"), LeaseTime: app.Duration(time.Hour), Discover: true, Created: now,
		Options: []app.DHCPOption{{Code: 26, Type: "uint16", Value: "9000"}}, Routes: []app.StaticRoute{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: netip.MustParseAddr("192.0.2.254")}},
		Reservations: []app.Reservation{{MAC: "00:00:5e:00:53:0a", Addr: netip.MustParseAddr("192.0.2.10"), Note: "printer " + wire}}}))
	x.Wire.Find([]app.Rival{{Interface: "eno2", Server: netip.MustParseAddr("192.0.2.3"), MAC: "00:00:5e:00:53:03", Offered: netip.MustParseAddr("192.0.2.77"), BootFile: "theirs.efi " + wire, Seen: now}}, nil)
	must(x.Store.PutSubnet(ctx, &app.Subnet{ID: "net-2", CIDR: netip.MustParsePrefix("198.51.100.0/24"), Mode: "off", LeaseTime: app.Duration(time.Hour), Created: now}))
	must(x.Store.PutLeases(ctx, []app.Lease{{MAC: "00:00:5e:00:53:01", Addr: netip.MustParseAddr("192.0.2.100"), SubnetID: "net-1", Hostname: wire, State: "bound", Reserved: true, Expires: now.Add(time.Hour), Seen: now}}))
	must(x.Store.PutDiscovery(ctx, &app.Discovery{MAC: "00:00:5e:00:53:77", Arch: "x64", Address: "192.0.2.140", SubnetID: "net-1", Vendor: "PXEClient " + wire, Count: 3, First: now, Last: now}))
	must(x.Store.CreateImage(ctx, &app.Image{ID: "img-1", Name: "debian-12", State: "ready", Format: "qcow2", SourceSHA: "9d4f0c1b2e3a4f5061728394a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8", RawBytes: 3 << 30, UsedBytes: 1100 << 20, StoreBytes: 402 << 20,
		Layout: app.Layout{Table: "gpt", SectorSize: 512, BIOS: true, UEFI: true}, Created: now.Add(-26 * time.Hour)}))
	must(x.Store.CreateImage(ctx, &app.Image{ID: "img-2", Name: "rocky-9", State: "importing", Format: "raw.xz", Done: 412 << 20, Total: 1200 << 20, Created: now}))
	must(x.Store.CreateImage(ctx, &app.Image{ID: "img-3", Name: "broken", State: "failed", Reason: "the digest does not match " + wire, Created: now}))
	must(x.Store.CreateImage(ctx, &app.Image{ID: "img-4", Name: "netinst", State: "ready", Format: "iso", RawBytes: 630 << 20, UsedBytes: 630 << 20, StoreBytes: 630 << 20,
		Layout: app.Layout{Table: app.TableISO, SectorSize: 2048, BIOS: true, UEFI: true}, Created: now.Add(-time.Hour)}))
	for _, m := range demoMachines(now, wire) {
		must(x.Store.CreateMachine(ctx, &m))
	}
	for _, q := range []app.PortQuestion{
		app.NewPortQuestion(app.PortMoved, "00:00:5e:00:53:04", "m-4", "m-5", now),
		app.NewPortQuestion(app.PortNew, "00:00:5e:00:53:13", "", "m-3", now.Add(-time.Hour)),
	} {
		_, err := x.Store.AskPort(ctx, &q)
		must(err)
	}
	demoBindings(x, must, now, wire)
	inv, err := json.Marshal(demoInventory(now, wire))
	must(err)
	must(x.Store.SetInventory(ctx, "m-2", inv))
	must(x.Store.SetInventory(ctx, "m-1", inv))
	must(x.Store.PutBootOrder(ctx, demoBootOrder(now, wire), &app.BootReading{Time: now, During: "release", Order: []string{wire}}))
	must(x.Store.PutCertificate(ctx, demoCertificate(now, wire)))
	for _, w := range demoFlows(now, wire) {
		x.Flows.Put(w)
	}
	x.Flows.Entries = []workflow.Entry{{ID: 1, Time: now, WorkflowID: "w-1", StepID: "write", What: "intent"}, {ID: 2, Time: now, WorkflowID: "w-1", StepID: "write", What: "error", Data: json.RawMessage(`{"message":"disk error"}`)}}
	must(x.Store.AddEvents(ctx, []app.Event{
		{Time: now.Add(-3 * time.Minute), Kind: "bmc.power", Level: "info", MachineID: "m-2", Actor: "alice", Message: "power on: the BMC says on"},
		{Time: now.Add(-160 * time.Second), Kind: "dhcp.offer", Level: "info", MachineID: "m-2", Message: "192.0.2.101 offered, x64 UEFI, host name " + wire},
		{Time: now.Add(-150 * time.Second), Kind: "tftp.get", Level: "info", MachineID: "m-2", Message: "snponly.efi, 281 kB"},
		{Time: now.Add(-60 * time.Second), Kind: "agent.up", Level: "info", MachineID: "m-2", Message: "the agent reported for duty"},
		{Time: now.Add(-40 * time.Second), Kind: "bmc.power", Level: "warn", MachineID: "m-4", Message: "the BMC took 31 s to answer"},
		{Time: now.Add(-30 * time.Second), Kind: "machine.state", Level: "error", MachineID: "m-4", Message: "commissioning failed: " + wire},
	}))
	demoRecords(x, now, wire)
	x.Health.List = []api.Warning{{Code: "rival-dhcp", Level: "warn", Message: "another DHCP server answers on eno2: 192.0.2.5", WayOut: "switch it off, or turn the subnet off here"}}
	x.Service.Card = &api.Card{OK: true, SPKI: "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef", PinStatus: "first-use", Vendor: "Contoso", Model: "3500 " + wire, Serial: "437XR1138R2",
		UUID: "38947555-7742-3448-3784-823347823834", Firmware: "1.45.455b66-rev4", Power: app.PowerOff, MACs: []string{"00:00:5e:00:53:0a"}, Notes: []string{"its clock is 41 s behind"}}
}

func demoMachines(now time.Time, wire string) []app.Machine {
	nic := func(m app.MAC) []app.NIC {
		return []app.NIC{{MAC: m, Name: "eno1", Confirmed: true, Boot: true, Source: "netboot"}}
	}
	bmc := func(a string) *app.BMC {
		return &app.BMC{Driver: "redfish", Address: a, CredentialRef: "secret://root/bmc", SPKI: "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"}
	}
	sum := app.HardwareSummary{CPUs: 64, CPUModel: "Xeon", MemoryBytes: 256 << 30, Disks: 4, DiskBytes: 7680 << 30}
	base := app.Machine{Vendor: "Contoso", Model: "R640 " + wire, Serial: "CN-1", Firmware: app.FirmwareUEFI, Power: app.PowerOff, Summary: sum, Pool: "compute", Created: now, Updated: now}
	mk := func(id, name string, s app.State, p app.Power, mac app.MAC, addr string) app.Machine {
		m := base
		m.ID, m.Name, m.State, m.Power, m.NICs, m.BMC, m.StateSince = id, name, s, p, nic(mac), bmc(addr), now.Add(-7*time.Minute)
		return m
	}
	deployed := mk("m-1", "rack1-node1", app.StateDeployed, app.PowerOn, "00:00:5e:00:53:01", "192.0.2.11")
	deployed.Deployment = &app.Deployment{ImageID: "img-1", ImageName: "debian-12", Hostname: "rack1-node1", Disk: app.DiskID{Name: "nvme0n1", Serial: "S4EWNX0M", Bytes: 960 << 30}, BootPath: "firmware",
		Started: now.Add(-time.Hour), Written: now.Add(-50 * time.Minute), Alive: now.Add(-48 * time.Minute), PhonedHome: now.Add(-47 * time.Minute), Heartbeat: now.Add(-20 * time.Second), Confirmed: true}
	deployed.OwnDisks, deployed.Labels, deployed.Note = []app.DiskID{{Name: "nvme0n1", Serial: "S4EWNX0M"}}, map[string]string{"rack": "1", "owner": wire}, wire
	deploying := mk("m-2", "rack1-node2", app.StateDeploying, app.PowerOn, "00:00:5e:00:53:02", "192.0.2.12")
	deploying.WorkflowID = "w-1"
	ready := mk("m-3", "rack1-node3", app.StateReady, app.PowerOff, "00:00:5e:00:53:03", "192.0.2.13")
	ready.NICs = append(ready.NICs, app.NIC{MAC: "00:00:5e:00:53:13", Name: wire, Source: "bmc"})
	failed := mk("m-4", "rack2-node1", app.StateFailed, app.PowerUnknown, "00:00:5e:00:53:04", "192.0.2.14")
	failed.StateReason, failed.FailedVerb, failed.PowerReason = "the agent did not report within 20 minutes: powered on, no DISCOVER seen: "+wire, "commission", "the BMC did not answer"
	enrolled := mk("m-5", "rack2-node2", app.StateEnrolled, app.PowerOff, "00:00:5e:00:53:05", "192.0.2.15")
	enrolled.Locked, enrolled.LockReason = true, "on loan to "+wire
	return []app.Machine{deployed, deploying, ready, failed, enrolled}
}

// demoBindings binds one machine to drivers in all layers, and lets a batch wait for a second operator.
func demoBindings(x *Site, must func(error), now time.Time, wire string) {
	ctx := context.Background()
	_, err := x.Store.UpdateMachine(ctx, "m-1", func(m *app.Machine) error {
		config := json.RawMessage(`{"address":"192.0.2.21","tlsSpkiSha256":"5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"}`)
		m.Drivers = map[string]app.Binding{"management": {Driver: "redfish", Config: config, Layer: "bmc"}, "power": {Driver: "redfish", Config: config, Layer: "profile"}, "boot": {Driver: "ipxe", Layer: "machine"}}
		m.Labels["bc.dev/driver.redfish"], m.Labels["bc.dev/driver-kind.redfish.power"], m.Labels["bc.dev/driver.ipxe"] = "1.0.0", "1", "1.0.0"
		m.Sources = map[string]string{"model": "ramdisk", "serial": "redfish"}
		return nil
	})
	must(err)
	must(x.Store.CreateApproval(ctx, &app.Approval{ID: "ap-1", Operation: "release", Verb: "release", Options: json.RawMessage(`{"disks":[]}`), Actor: wire, UserID: "u-gone", State: app.ApprovalPending,
		Created: now.Add(-time.Hour), Expires: now.Add(time.Hour), Reason: wire, Machines: []app.ApprovalItem{{ID: "m-1", Name: "rack1-node1"}, {ID: "m-3", Name: wire}}}))
	must(x.Store.BeginBMCOperation(ctx, &app.BMCOperation{MachineID: "m-1", Command: "bmc.power", Operation: "power.setPower", Driver: "redfish", Args: json.RawMessage(`["off"]`), Error: wire, Started: now}, ""))
}

func demoInventory(now time.Time, wire string) agentv1.Inventory {
	return agentv1.Inventory{Taken: now, Firmware: "uefi", System: agentv1.System{Manufacturer: "Contoso", Product: "R640 " + wire, Serial: "CN-1", BIOSVendor: wire, BIOSVersion: "2.1"},
		CPUs:   []agentv1.CPU{{Model: "Xeon Gold 6226R " + wire, Cores: 16, Threads: 32}, {Socket: 1, Model: "Xeon Gold 6226R", Cores: 16, Threads: 32}},
		Memory: agentv1.Memory{Bytes: 256 << 30, Modules: []agentv1.Module{{Slot: "A1", Bytes: 32 << 30}}},
		Disks: []agentv1.Disk{{Name: "nvme0n1", Serial: "S4EWNX0M", Model: "PM983 " + wire, Bytes: 960 << 30, SectorSize: 512, Transport: "nvme"},
			{Name: "sda", Serial: "ZA1", Model: "ST8000", Bytes: 8000 << 30, SectorSize: 4096, Rotational: true, Transport: "sas"}},
		NICs: []agentv1.NIC{{Name: "eno1", MAC: "00:00:5e:00:53:02", Driver: "ixgbe", Speed: 10000, Link: true, LLDP: &agentv1.LLDP{System: "leaf1 " + wire, Port: "Eth1/12"}}, {Name: wire, MAC: "00:00:5e:00:53:22", Driver: "ixgbe"}},
		PCI:  []agentv1.PCI{{Address: "0000:01:00.0", Class: "020000", Vendor: "8086", Device: "1528", Driver: "ixgbe"}}, TPM: "2.0", Kernel: "6.1.0-30-amd64", Wants: []string{"driver bnx2 wants firmware " + wire}}
}

func demoFlows(now time.Time, wire string) []workflow.Workflow {
	step := func(id, title string, s workflow.StepState, from, to time.Duration) workflow.Step {
		st := workflow.Step{ID: id, Title: title, Kind: "site", State: s}
		if from > 0 {
			st.Started = now.Add(-from)
		}
		if to > 0 {
			st.Ended = now.Add(-to)
		}
		return st
	}
	write := step("write", "Write the image", workflow.StepRunning, 50*time.Second, 0)
	write.Progress = &workflow.Progress{Phase: "writing", Message: wire, Done: 1320 << 20, Total: 3 << 30, Unit: "bytes", Rate: 212 << 20, ETA: 8, At: now}
	failed := step("agent", "Wait for the agent", workflow.StepFailed, 21*time.Minute, time.Minute)
	failed.Error = app.Errorf(app.Timeout, "agent-not-up", "the agent did not report within 20 minutes: %s", wire).Do("check the cable, the switch port and the boot order")
	unknown := step("power", "Power on", workflow.StepInterrupted, time.Minute, 0)
	erased := step("certificate", "Write down what became of each disk", workflow.StepDone, 3*time.Hour, 3*time.Hour)
	erased.Result, _ = json.Marshal(demoCertificate(now, wire))
	return []workflow.Workflow{
		{ID: "w-1", Verb: "deploy", MachineID: "m-2", State: workflow.Running, Cursor: 3, Actor: "alice", Created: now.Add(-4 * time.Minute), Steps: []workflow.Step{
			step("boot", "Set the boot device", workflow.StepDone, 240*time.Second, 235*time.Second), step("power", "Power on", workflow.StepDone, 235*time.Second, 200*time.Second),
			step("agent", "Wait for the agent", workflow.StepDone, 200*time.Second, 50*time.Second), write,
			step("configure", "Configure the first boot", workflow.StepWaiting, 0, 0), step("reboot", "Start the system", workflow.StepWaiting, 0, 0), step("alive", "Wait for the system to call home", workflow.StepWaiting, 0, 0)}},
		{ID: "w-2", Verb: "commission", MachineID: "m-4", State: workflow.Failed, Actor: wire, Created: now.Add(-22 * time.Minute), Ended: now.Add(-time.Minute), Error: failed.Error,
			Steps: []workflow.Step{step("boot", "Set the boot device", workflow.StepDone, 22*time.Minute, 21*time.Minute), failed}},
		{ID: "w-3", Verb: "commission", MachineID: "m-5", State: workflow.Interrupted, Actor: "bob", Created: now.Add(-time.Minute), Steps: []workflow.Step{unknown}},
		{ID: "w-4", Verb: "release", MachineID: "m-3", State: workflow.Done, Actor: "alice", Created: now.Add(-5 * time.Hour), Ended: now.Add(-3 * time.Hour), Steps: []workflow.Step{erased}},
		{ID: "w-5", Verb: "commission", MachineID: "m-1", State: workflow.Failed, Actor: "alice", Created: now.Add(-7 * time.Hour), Ended: now.Add(-6 * time.Hour), Steps: demoTests(now, wire)},
	}
}

// demoCertificate is of a release that erased one of two disks.
func demoCertificate(now time.Time, wire string) *app.Certificate {
	return &app.Certificate{WorkflowID: "w-4", MachineID: "m-3", Machine: "rack1-node3", Serial: wire, Vendor: "Contoso", Model: "R640", Operator: "alice", Issued: now.Add(-3 * time.Hour), Disks: []app.ErasedDisk{
		{Disk: app.DiskID{Name: "nvme0n1", Serial: "S4EWNX0M", Model: wire, Bytes: 3 << 40}, Erased: true, Method: "nvme-sanitize-crypto", Sentinels: 272, Started: now.Add(-4 * time.Hour), Ended: now.Add(-3 * time.Hour)},
		{Disk: app.DiskID{Name: "sdb", Serial: "ZA1", Bytes: 4 << 40}, Sentinels: 272, Started: now.Add(-4 * time.Hour), Ended: now.Add(-3 * time.Hour), Note: "the firmware froze the disk's security: " + wire}}}
}

// demoBootOrder is that of a machine whose firmware did not take ours.
func demoBootOrder(now time.Time, wire string) *app.BootOrder {
	return &app.BootOrder{MachineID: "m-1", Firmware: app.FirmwareUEFI, Policy: app.BootAsFound, PolicyReason: "its BMC boots the network once when asked",
		Writer: app.BootByAgent, WriterReason: "its firmware keeps the order in variables, which read back at once",
		Agent: &app.BootView{Time: now, During: "release", Order: []string{"Boot0005", "Boot0001"}, Next: "Boot0001", Entries: []app.BootEntry{
			{ID: "Boot0005", Name: "debian " + wire, Kind: app.BootSystem, File: `\EFI\debian\shimx64.efi`, Partition: "gpt:1", Path: "HD(1)"},
			{ID: "Boot0001", Name: "UEFI PXEv4", Kind: app.BootNetwork, Protocol: "PXE IPv4", MAC: "00:00:5e:00:53:01", Path: "MAC(1)"}}},
		Partitions: []app.OwnPartition{{Partition: "gpt:1", Disk: app.DiskID{Serial: "S1 " + wire}}},
		Changed:    &app.BootChange{Time: now, By: "system", What: []string{"debian was added, at 1 " + wire}},
		Problem:    app.Errorf(app.Conflict, app.ReasonNVRAMFull, "the firmware has no room left for its variables %s", wire).Do("update or reset the firmware's settings"), Notes: []string{wire}}
}

// demoTests are the tests of a commissioning: one passed, one failed, one that could not be made.
func demoTests(now time.Time, wire string) []workflow.Step {
	at := now.Add(-6 * time.Hour)
	var out []workflow.Step
	for i, r := range []agentv1.TestResult{
		{Test: "link", Result: agentv1.TestPassed, Values: []agentv1.TestValue{{Subject: "eno1", Name: "leads to", Text: wire}, {Subject: "eno1", Name: "speed", Value: 25000, Unit: "Mbit/s", Limit: "at least 10000"}}, Log: wire},
		{Test: "disk-read", Result: agentv1.TestFailed, Message: "sda rate: 12 MB/s, at least 100 is wanted " + wire, Skipped: []string{"sdb: is storage of the network"},
			Values: []agentv1.TestValue{{Subject: "sda", Name: "rate", Value: 12, Unit: "MB/s", Limit: "at least 100", Failed: true}}},
		{Test: "smart", Result: agentv1.TestNotRun, Message: "vda: a virtio disk has no command for its health"},
	} {
		r.Started, r.Ended = at, at.Add(time.Second)
		kind, _ := app.KindOfTest(r.Test)
		raw, _ := json.Marshal(r)
		out = append(out, workflow.Step{ID: "test-" + strconv.Itoa(i), Title: kind.Title, Kind: agentv1.KindTest, State: workflow.StepDone, Started: at, Ended: r.Ended,
			Payload: json.RawMessage(`{"test":"` + r.Test + `"}`), Result: raw})
	}
	return out
}
