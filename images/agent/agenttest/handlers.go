package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/better-compute/bcd/images/agent"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Bytes of the one disk of a simulated machine.
const diskBytes = 16 << 30

// Inventory is what a simulated machine finds: a UEFI server with one virtio disk.
func Inventory() agentv1.Inventory {
	return agentv1.Inventory{
		Taken: time.Now().UTC(), Firmware: "uefi", Kernel: "6.1.0-sim",
		System: agentv1.System{Manufacturer: "Example", Product: "Simulated", Serial: "SIM0001", UUID: "01234567-89ab-cdef-0123-456789abcdef"},
		CPUs:   []agentv1.CPU{{Model: "Simulated CPU", Cores: 2, Threads: 2}},
		Memory: agentv1.Memory{Bytes: 2 << 30},
		Disks:  []agentv1.Disk{{Name: "vda", Serial: "SIMDISK1", Bytes: diskBytes, SectorSize: 512, Physical: 512, Transport: "virtio"}},
		NICs:   []agentv1.NIC{{Name: "eth0", MAC: "00:00:5e:00:53:01", Driver: "virtio_net", Link: true, Boot: true}},
	}
}

// BootOrder is what the firmware of a simulated machine holds: the network, then the disk.
func BootOrder() agentv1.BootOrderResult {
	return agentv1.BootOrderResult{Firmware: "uefi", Found: agentv1.BootView{
		Order: []string{"Boot0001", "Boot0002"}, Current: "Boot0001",
		Entries: []agentv1.BootEntry{
			{ID: "Boot0001", Name: "UEFI PXEv4", Kind: "network", Protocol: "PXE IPv4", MAC: "00:00:5e:00:53:01", Path: "PciRoot(0x0)/Pci(0x2,0x0)/MAC(00005e005301,0x1)/IPv4(0.0.0.0)"},
			{ID: "Boot0002", Name: "UEFI Misc Device", Kind: "disk", Path: "PciRoot(0x0)/Pci(0x3,0x0)"},
		},
	}}
}

// DefaultHandlers do every kind at once and succeed, with a step of progress.
func DefaultHandlers() map[string]agent.Handler {
	return map[string]agent.Handler{
		agentv1.KindInventory: simple(func(struct{}) any { return Inventory() }),
		agentv1.KindDriverInvoke: agent.Invoke(map[string]agent.Operations{
			"ramdisk": {"inspect.inspect": simple(func(struct{}) any { return Inventory() })},
			"image-stream": {
				"deploy.deploy": simple(func(s []agentv1.DeploySpec) any {
					return agentv1.DeployResult{Bytes: s[0].RawBytes, SHA256: s[0].SHA256}
				}),
				"deploy.tearDown": simple(func([]agentv1.TearDownSpec) any { return struct{}{} }),
			},
		}),
		agentv1.KindSetClock:  simple(func(agentv1.SetClock) any { return agentv1.SetClockResult{Time: time.Now().UTC(), RTC: true} }),
		agentv1.KindWrite:     simple(written),
		agentv1.KindVerify:    simple(written),
		agentv1.KindConfigure: simple(func(agentv1.Configure) any { return struct{}{} }),
		agentv1.KindWipe:      simple(wiped),
		agentv1.KindTest:      simple(tested),
		agentv1.KindBootOrder: simple(func(agentv1.BootOrder) any { return BootOrder() }),
		agentv1.KindKexecLoad: simple(func(k agentv1.Kexec) any {
			return agentv1.KexecResult{Kernel: "/boot/vmlinuz", Initrds: []string{"/boot/initrd.img"}, Cmdline: "root=/dev/vda2 " + k.KernelArgs}
		}),
		agentv1.KindReboot:   simple(func(struct{}) any { return struct{}{} }),
		agentv1.KindPowerOff: simple(func(struct{}) any { return struct{}{} }),
	}
}

func simple[P any](f func(P) any) agent.Handler {
	return func(ctx context.Context, c agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		var p P
		if len(c.Payload) > 0 {
			if err := json.Unmarshal(c.Payload, &p); err != nil {
				return nil, fmt.Errorf("decoding payload of %s: %w", c.Kind, err)
			}
		}
		progress(agentv1.ProgressReport{Phase: "working", Done: 1, Total: 1})
		return f(p), ctx.Err()
	}
}

// tested passes, but for a disk that is to read more than it can.
func tested(o agentv1.Test) any {
	const rate = 500 // MB/s
	r := agentv1.TestResult{Test: o.Test, Result: agentv1.TestPassed, Started: time.Now().UTC(), Ended: time.Now().UTC(), Log: "read it all\n"}
	if o.Test != "disk-read" {
		return r
	}
	v := agentv1.TestValue{Subject: "vda", Name: "rate", Value: rate, Unit: "MB/s"}
	if least, set := o.With["minMBps"]; set {
		v.Limit, v.Failed = fmt.Sprintf("at least %g", least), least > rate
	}
	if r.Values = append(r.Values, v); v.Failed {
		r.Result, r.Message = agentv1.TestFailed, fmt.Sprintf("vda rate: %d MB/s, %s is wanted", rate, v.Limit)
	}
	return r
}

func written(w agentv1.Write) any {
	return agentv1.WriteResult{
		Disk: w.Disk, BytesWritten: w.RawBytes / 2, BytesZeroed: w.RawBytes - w.RawBytes/2, BytesFetched: w.RawBytes / 4,
		BytesVerified: w.RawBytes, Seconds: 1,
	}
}

func wiped(w agentv1.Wipe) any {
	var out agentv1.WipeResult
	for _, d := range w.Disks {
		out.Disks = append(out.Disks, agentv1.WipedDisk{
			Disk: d, Method: "overwrite", Erased: true, Sentinels: 64, Bytes: d.Bytes, Started: time.Now().UTC(), Ended: time.Now().UTC(),
		})
	}
	return out
}
