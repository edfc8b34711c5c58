package site

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/netboot"
)

// withPrograms gives a site the parts of boot programs: Debian's stub, and a kernel and an initramfs that are none.
func withPrograms(t *testing.T, s *Site) {
	t.Helper()
	dir := t.TempDir()
	stub, err := ramdisk.FindStub()
	if err != nil {
		t.Skipf("left out: %v", err)
	}
	m := &ramdisk.Manifest{}
	for name, b := range map[string][]byte{ramdisk.StubFile: stub.Binary, ramdisk.KernelFile: []byte("kernel"), ramdisk.InitramfsFile: []byte("initramfs")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, ramdisk.FileInfo{Name: name})
	}
	if s.programs, err = openBootImages(&bootFiles{dir, m}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.programs.close(); err != nil {
			t.Error(err)
		}
	})
}

func bytesOf(t *testing.T, i netboot.BootImage, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(i, 0, i.Size))
	if err != nil || int64(len(b)) != i.Size {
		t.Fatalf("%d of %d bytes: %v", len(b), i.Size, err)
	}
	return b
}

// A machine's program is the same for each fetch of one boot, whatever changes meanwhile and after its token is spent; the
// next boot has another, and a boot that is over has none.
func TestProgramOfABootStaysTheSame(t *testing.T) {
	p := netbooting(t)
	withPrograms(t, p.s)
	p.s.registry = drivers.New(drivers.Config{Logger: slog.New(slog.DiscardHandler), Profiles: p.s.db})
	set := func(args string) {
		t.Helper()
		if err := p.s.db.PutProfile(t.Context(), &app.Profile{Name: "model-x", KernelArgs: args}); err != nil {
			t.Fatal(err)
		}
	}
	set("first=1")
	if _, err := p.s.db.UpdateMachine(t.Context(), "m-a", func(m *app.Machine) error { m.Profile = "model-x"; return nil }); err != nil {
		t.Fatal(err)
	}
	key := func() string {
		t.Helper()
		b, err := p.s.agents.Live(t.Context(), "m-a")
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.Target(t.Context(), netboot.Client{MACs: []app.MAC{"00:00:5e:00:53:0a"}})
		if want := "/boot/" + b.Key + "/boot.efi"; err != nil || x.Program != want {
			t.Fatalf("its program is %q, want %q, %v", x.Program, want, err)
		}
		return b.Key
	}
	fetch := func(key, file string) ([]byte, string) {
		t.Helper()
		i, err := p.BootImage(t.Context(), key, file)
		if err == nil && i.MachineID != "m-a" {
			t.Errorf("it is of %q", i.MachineID)
		}
		return bytesOf(t, i, err), i.Tag
	}
	one := key()
	first, tag := fetch(one, netboot.ProgramFile)
	for _, want := range []string{"first=1", "kernel", "initramfs", "070701"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("the program holds no %q", want)
		}
	}
	set("second=2")
	err := p.s.db.SpendBoot(t.Context(), &app.AgentSession{ID: "s-1", SecretHash: strings.Repeat("0", 64), BootKey: one, MachineID: "m-a", WorkflowID: "w-m-a"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	again, againTag := fetch(one, netboot.ProgramFile)
	if !bytes.Equal(first, again) || tag != againTag {
		t.Error("the second fetch of one boot got other bytes")
	}
	cd, _ := fetch(one, netboot.CDFile)
	if !bytes.Contains(cd, first) || string(cd[0x8001:0x8006]) != "CD001" {
		t.Error("the CD does not hold the program")
	}
	if _, err := p.s.agents.Mint(t.Context(), app.Boot{MachineID: "m-a", WorkflowID: "w-2", Address: "192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	if next, nextTag := fetch(key(), netboot.ProgramFile); bytes.Equal(first, next) || tag == nextTag || !bytes.Contains(next, []byte("second=2")) {
		t.Error("the next boot got the program of the one before")
	}
	for _, gone := range []string{one, "boot-nobody", ""} {
		if _, err := p.BootImage(t.Context(), gone, netboot.ProgramFile); app.CodeOf(err) != app.NotFound {
			t.Errorf("the program of %q: %v", gone, err)
		}
	}
}

func TestBootCDIsForWhoMayBoot(t *testing.T) {
	p := netbooting(t)
	m, err := p.s.db.Machine(t.Context(), "m-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.bootCD(t.Context(), m); app.CodeOf(err) != app.Unsupported {
		t.Errorf("a ramdisk without a stub: %v", err)
	}
	withPrograms(t, p.s)
	if err := p.s.agents.Revoke(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	_, err = p.s.bootCD(t.Context(), m)
	if e, ok := app.AsError(err); !ok || e.Reason != "no-boot-permitted" || e.WayOut == "" {
		t.Errorf("no permission: %v", e)
	}
}

// The kernel arguments of boots long since over are forgotten, the oldest first.
func TestKernelArgumentsOfBootsAreBounded(t *testing.T) {
	b := &bootImages{lines: map[string]string{}}
	for i := range maxLines + 10 {
		b.cmdline(fmt.Sprint(i), "old")
	}
	if len(b.lines) != maxLines || b.cmdline("5", "new") != "new" || b.cmdline(fmt.Sprint(maxLines), "new") != "old" {
		t.Errorf("%d are remembered", len(b.lines))
	}
}
