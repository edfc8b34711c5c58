package osimage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/partition/gpt"
)

// TestAssemble makes a disk of a small tree, without root, and reads it back with other programs than wrote it.
func TestAssemble(t *testing.T) {
	for tool, pkg := range tools {
		if _, err := exec.LookPath(tool); err != nil && tool != "mmdebstrap" {
			t.Skipf("left out: %v (install %s)", err, pkg)
		}
	}
	root := t.TempDir()
	if err := (file{"etc/hostname", "debian\n", 0o644}).write(root); err != nil {
		t.Fatal(err)
	}
	o := Options{MiB: 1024}.withDefaults()
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := assemble(t.Context(), o, path, root, loaders{boot: bootImg(), core: bytes.Repeat([]byte{1}, 9000), efi: []byte("MZ loader")}); err != nil {
		t.Fatal(err)
	}

	d, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadOnly))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	table, err := d.GetPartitionTable()
	if err != nil {
		t.Fatal(err)
	}
	g, ok := table.(*gpt.Table)
	if !ok || !strings.EqualFold(g.GUID, o.uuid("table")) {
		t.Fatalf("table %T", table)
	}
	var parts []*gpt.Partition
	for _, p := range g.Partitions {
		if p.Type != gpt.Unused {
			parts = append(parts, p)
		}
	}
	if len(parts) != 3 || parts[0].Type != gpt.BIOSBoot || parts[1].Type != gpt.EFISystemPartition || !strings.EqualFold(parts[2].GUID, o.uuid("root partition")) {
		t.Fatalf("partitions %+v", parts)
	}
	if end := parts[2].Start + uint64(rootSectors(o)); end > uint64(o.MiB)*mib-33 || parts[2].Start < parts[1].End {
		t.Errorf("the root spans %d to %d", parts[2].Start, end)
	}
	serial := make([]byte, 4) // of the FAT32 boot sector (BS_VolID), by which fstab names the ESP
	if raw, err := os.Open(path); err != nil {
		t.Error(err)
	} else if _, err := raw.ReadAt(serial, espStart*sector+67); err != nil || raw.Close() != nil {
		t.Error(err)
	}
	if got := fmt.Sprintf("%08X", binary.LittleEndian.Uint32(serial)); got != o.volumeID() || !strings.Contains(files(o)[0].text, "UUID="+got[:4]+"-"+got[4:]+" /boot/efi ") {
		t.Errorf("the ESP is %s, want %s, as in\n%s", got, o.volumeID(), files(o)[0].text)
	}
	fs, err := d.GetFilesystem(2)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenFile("/EFI/BOOT/BOOTX64.EFI", os.O_RDONLY)
	if err != nil {
		t.Fatalf("no loader on the ESP: %v", err)
	}
	buf := make([]byte, 9)
	if n, _ := f.Read(buf); string(buf[:n]) != "MZ loader" {
		t.Errorf("loader %q", buf[:n])
	}
	checkRoot(t, path, o)
}

// checkRoot runs e2fsck over the root and looks for what GRUB could not read.
func checkRoot(t *testing.T, path string, o Options) {
	t.Helper()
	root := rootOf(path)
	if out, err := exec.Command("e2fsck", "-fn", root).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
	out, err := exec.Command("dumpe2fs", "-h", root).Output()
	if err != nil || !bytes.Contains(out, []byte(o.uuid("root"))) || bytes.Contains(out, []byte("metadata_csum_seed")) {
		t.Errorf("superblock (%v):\n%s", err, out)
	}
}

// rootOf names the root file system inside an image, for the tools of e2fsprogs.
func rootOf(path string) string { return fmt.Sprintf("%s?offset=%d", path, int64(rootStart)*sector) }

func TestFiles(t *testing.T) {
	o := Options{KernelArgs: "iommu=pt"}.withDefaults()
	all := map[string]string{}
	for _, f := range files(o) {
		if strings.HasPrefix(f.path, "/") || strings.Contains(f.path, "..") {
			t.Errorf("path %q", f.path)
		}
		all[f.path] = f.text
	}
	if !strings.Contains(all["etc/fstab"], "UUID="+o.uuid("root")) || !strings.Contains(all["etc/default/grub"], "ttyS0,115200n8 iommu=pt\"") {
		t.Errorf("fstab %q, grub %q", all["etc/fstab"], all["etc/default/grub"])
	}
}
