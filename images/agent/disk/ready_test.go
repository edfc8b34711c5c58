package disk

import (
	"context"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Every refusal of a write names the image as well as the disk.
func TestRefusalsNameTheImage(t *testing.T) {
	s := newSite(t, testRaw(1, 2<<20))
	d := sda(4 << 20)
	for name, change := range map[string]func(*agentv1.Write){
		"sector size": func(o *agentv1.Write) { o.SectorSize = 4096 },
		"too small":   func(o *agentv1.Write) { o.RawBytes = 5 << 20 },
		"no disk":     func(o *agentv1.Write) { o.Disk.Serial = "X" },
		"other bytes": func(o *agentv1.Write) { o.IndexSHA256 = strings.Repeat("0", 64) },
	} {
		r := newRig(t, s, d)
		o := s.order(d)
		o.Image = "debian-12"
		change(&o)
		_, err := r.Write(context.Background(), o, quiet)
		e, ok := app.AsError(err)
		if !ok || !strings.HasPrefix(e.Message, "image debian-12 was not written: ") || e.WayOut == "" || e.Reason == "" {
			t.Errorf("%s: %v", name, err)
		}
		if name != "other bytes" && !strings.Contains(e.Message, "sda") {
			t.Errorf("%s names no disk: %v", name, err)
		}
	}
}

// A disk that the firmware of this machine finds no loader on is refused before the reboot.
func TestConfigureRefusesWhatTheFirmwareCannotStart(t *testing.T) {
	for firmware, want := range map[string]string{"uefi": "no-esp", "bios": "no-bios-boot", "": ""} {
		r := installed(t, gptTable, 16<<20) // an ESP without a loader, and no boot code
		r.cfg.Firmware = firmware
		_, err := r.Configure(context.Background(), agentv1.Configure{Disk: agentv1.DiskTarget{Serial: "S1"}, Seed: seedFiles, Image: "debian-12", Boots: true}, quiet)
		e, _ := app.AsError(err)
		if reason(err) != want || want != "" && (e.WayOut == "" || !strings.Contains(e.Message, "image debian-12 ") || !strings.Contains(e.Message, "sda")) {
			t.Errorf("%q: %v", firmware, err)
		}
	}
}

func TestGrowth(t *testing.T) {
	const gib = 1 << 30
	part := func(n int, from, to int64, fs, name string) app.Partition {
		return app.Partition{Number: n, Start: from << 20, Size: (to - from) << 20, FS: fs, Name: name}
	}
	seed := part(9, 100*1024-20, 100*1024-4, "vfat", seedName)
	for name, c := range map[string]struct {
		table string
		bytes int64
		parts []app.Partition
		want  string // "" for no note
	}{
		"root last":                      {"gpt", 100 * gib, []app.Partition{part(1, 1, 100, "vfat", ""), part(2, 100, 2048, "ext4", "root"), seed}, ""},
		"root first in number, last":     {"gpt", 100 * gib, []app.Partition{part(1, 200, 2048, "ext4", ""), part(15, 100, 200, "vfat", ""), seed}, ""},
		"swap behind the root":           {"gpt", 100 * gib, []app.Partition{part(1, 1, 2048, "xfs", ""), part(2, 2048, 4096, "", "swap"), seed}, "partition 2 lies behind it"},
		"the same, on a disk as large":   {"gpt", 5 * gib, []app.Partition{part(1, 1, 2048, "xfs", ""), part(2, 2048, 4600, "", "swap")}, ""},
		"MBR, the seed last":             {"mbr", 100 * gib, []app.Partition{part(1, 1, 2048, "ext4", ""), part(2, 100*1024-16, 100*1024, "vfat", "")}, ""},
		"MBR, swap behind the root":      {"mbr", 100 * gib, []app.Partition{part(1, 1, 2048, "ext4", ""), part(2, 2048, 3000, "", ""), part(3, 100*1024-16, 100*1024, "vfat", "")}, "partition 2 lies behind it"},
		"MBR on a disk of 4 TiB":         {"mbr", 4096 * gib, []app.Partition{part(1, 1, 2048, "ext4", "")}, "reaches 2 TiB"},
		"an image whose root is unknown": {"gpt", 100 * gib, []app.Partition{part(1, 1, 100, "vfat", ""), part(2, 100, 2048, "", ""), part(3, 2048, 2100, "", "")}, ""},
	} {
		got := strings.Join(growth(agentv1.Disk{Name: "sda", Bytes: c.bytes}, app.Layout{Table: c.table, Partitions: c.parts}, "debian-12"), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || got != "" && (!strings.Contains(got, "image debian-12 ") || !strings.Contains(got, "sda") || !strings.Contains(got, "use an image")) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
