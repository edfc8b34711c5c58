package webtest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
)

// Record puts records on timelines and waits until they are there. All are of one machine, or of one port.
func (x *Site) Record(all ...app.Record) {
	x.T.Helper()
	sub := x.Records.Follow(app.RecordFilter{MachineID: all[0].MachineID, MAC: all[0].MAC}, len(all)+1)
	defer sub.Close()
	for _, r := range all {
		x.Records.Record(r)
	}
	for range all {
		<-sub.C
	}
}

// Boot is a machine's boot, seen from the appliance, as far as it went: "agent", "kernel" (the agent does not call), "tftp"
// (the loader broke off) or "power" (nothing was heard). It began some time before now. Text from the wire is wire.
func Boot(machine string, began time.Time, upTo, wire string) []app.Record {
	mac := app.MAC("00:00:5e:00:53:02")
	var out []app.Record
	add := func(after float64, kind, message string, data map[string]any) {
		r := app.Record{Time: began.Add(time.Duration(after * float64(time.Second))), Kind: kind, Level: "info", MachineID: machine, Message: message}
		if data != nil {
			if data["mac"] != nil {
				r.MAC = mac
			}
			r.Data, _ = json.Marshal(data) // maps of plain values marshal
		}
		out = append(out, r)
	}
	dhcp := func(after float64, kind, request, stage, file, message string) {
		add(after, kind, message, map[string]any{"mac": mac, "address": "192.0.2.101", "request": request, "stage": stage, "arch": "x64", "file": file, "interface": "eno2", "subnet": "net-1", "hostname": wire})
	}
	get := func(after float64, kind, name string, bytes, millis int64) {
		add(after, kind, fmt.Sprintf("%q was loaded.", name), map[string]any{"mac": mac, "name": name, "method": "GET", "status": 200, "bytes": bytes, "size": bytes, "millis": millis, "bytesPerSecond": bytes * 1000 / millis, "userAgent": wire})
	}
	add(-3, "boot.permit", "The next network boot loads the ramdisk.", nil)
	add(0, "bmc.power", "The BMC is asked: power on.", map[string]any{"action": "on", "phase": "asked"})
	add(2.1, "bmc.power", "The BMC has done it, and it was read back: power on, in 2.1 s.", map[string]any{"action": "on", "phase": "done", "millis": 2100})
	if upTo == "power" {
		return out
	}
	dhcp(31, "dhcp.offer", "DISCOVER", "firmware", "snponly.efi", "Address 192.0.2.101 was offered, host name "+wire)
	dhcp(32, "dhcp.ack", "REQUEST", "firmware", "snponly.efi", "Address 192.0.2.101 is the client's.")
	if upTo == "tftp" {
		add(40, "tftp.get", `Loading "snponly.efi" by TFTP failed after 1468 bytes.`, map[string]any{"mac": mac, "name": "snponly.efi", "bytes": 1468, "millis": 7000, "blockSize": 1468, "retries": 6, "error": "no acknowledgement of block 2 " + wire})
		out[len(out)-1].Level = "warn"
		return out
	}
	add(33, "tftp.get", `"snponly.efi" was loaded by TFTP.`, map[string]any{"mac": mac, "name": "snponly.efi", "bytes": 281600, "millis": 412, "bytesPerSecond": 683495})
	dhcp(35, "dhcp.ack", "REQUEST", "ipxe", "http://192.0.2.1:8080/boot/script", "Address 192.0.2.101 is the client's.")
	add(36, "ipxe.script", "The machine was told to load the ramdisk.", map[string]any{"macs": []app.MAC{mac}, "kind": "ramdisk"})
	get(38, "http.get", "/ramdisk/vmlinuz", 8_400_000, 130)
	get(39, "http.get", "/ramdisk/initramfs.zst", 19_200_000, 310)
	for i, line := range []string{"Linux version 6.12.38 (debian)", "ixgbe 0000:01:00.0: registered", wire, "bnx2: firmware: failed to load bnx2/bnx2-mips-09-6.2.1b.fw (-2)"} {
		add(41+float64(i), recorder.KindConsole, line, nil)
	}
	if upTo == "agent" {
		add(62, "agent.up", "the agent of the ramdisk is up at 192.0.2.101", map[string]any{"address": "192.0.2.101"})
	}
	return out
}

// demoRecords gives the demo's machines a past.
func demoRecords(x *Site, now time.Time, wire string) {
	x.Record(Boot("m-2", now.Add(-2*time.Minute), "agent", wire)...)
	x.Record(Boot("m-4", now.Add(-20*time.Minute), "kernel", wire)...)
	x.Record(Boot("m-5", now.Add(-50*time.Second), "tftp", wire)...)
}
