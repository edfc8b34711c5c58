package osimage

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/boot"
	"github.com/u-root/u-root/pkg/boot/grub"

	"github.com/better-compute/bcd/app"
)

// TestBuild builds the default image, or finds it in the cache named by the environment.
func TestBuild(t *testing.T) {
	cache := os.Getenv("BCD_OSIMAGE_CACHE")
	if cache == "" {
		t.Skip("left out: it downloads a Debian system; set BCD_OSIMAGE_CACHE to a directory to run it as root")
	}
	if err := ready(); err != nil {
		t.Skipf("left out: %v", err)
	}
	img, err := Build(t.Context(), Config{Cache: cache, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: kernel %s, %d MiB used of %d", img.Path, img.Kernel, img.Used>>20, img.RawBytes>>20)
	again, err := Build(t.Context(), Config{Cache: cache})
	if err != nil || again.Built != img.Built {
		t.Errorf("a second build is not the first one: %v", err)
	}
	checkRoot(t, img.Path, img.Options)
	checkGrubConfig(t, img)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), cache) {
		t.Errorf("a mount was left behind (%v)", err)
	}
}

// checkGrubConfig reads the image's grub.cfg with u-root's parser, which is what finds the kernel for a kexec.
func checkGrubConfig(t *testing.T, img *Image) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"/boot/grub/grub.cfg", "/boot/vmlinuz-" + img.Kernel, "/boot/initrd.img-" + img.Kernel} {
		out, err := exec.Command("debugfs", "-R", "cat "+name, rootOf(img.Path)).Output()
		if err != nil || len(out) == 0 {
			t.Fatalf("%s is not in the image: %v", name, err)
		}
		if err := (file{name, string(out), 0o600}).write(dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := grub.ParseLocalConfig(t.Context(), dir, nil, nil)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	first, ok := entries[0].(*boot.LinuxImage)
	if !ok || first.Kernel == nil || first.Initrd == nil || !strings.Contains(first.Cmdline, "root=UUID="+img.RootUUID) {
		t.Errorf("first entry: %v", entries[0])
	}
}

func TestOptions(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    Options
		ok   bool
	}{
		{"default", Options{}, true},
		{"packages", Options{Packages: []string{"vim-tiny", "libstdc++6"}}, true},
		{"option as package", Options{Packages: []string{"--setup-hook=rm"}}, false},
		{"list as package", Options{Packages: []string{"a,b"}}, false},
		{"small", Options{MiB: 100}, false},
		{"kernel", Options{Kernel: "rt"}, false},
		{"mirror", Options{Mirror: "file:///etc"}, false},
		{"arguments", Options{KernelArgs: "quiet iommu=pt"}, true},
		{"shell in arguments", Options{KernelArgs: "$(reboot)"}, false},
		{"line in arguments", Options{KernelArgs: "a\nb"}, false},
	} {
		if err := tc.o.withDefaults().Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	a, b := Options{}.withDefaults(), Options{Seed: "other"}.withDefaults()
	if a.key() == b.key() || a.uuid("root") == b.uuid("root") || a.uuid("root") == a.uuid("esp") || a.uuid("root") != (Options{}).withDefaults().uuid("root") {
		t.Error("keys and UUIDs do not follow the options")
	}
	if id, err := app.ParseUUID(a.uuid("root")); err != nil || string(id) != a.uuid("root") {
		t.Errorf("%q is not a UUID: %v", a.uuid("root"), err)
	}
}
