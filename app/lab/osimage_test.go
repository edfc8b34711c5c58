package lab

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/layout"
	"github.com/better-compute/bcd/images/osimage"
)

// osImage gives the Debian image, built when the cache named by the environment does not hold it.
func osImage(t *testing.T) *osimage.Image {
	t.Helper()
	cache := os.Getenv("BCD_OSIMAGE_CACHE")
	if cache == "" {
		t.Skip("left out: it boots a Debian system for minutes; set BCD_OSIMAGE_CACHE to a directory to run it as root")
	}
	img, err := osimage.Build(t.Context(), osimage.Config{Cache: cache, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

const userData = `#cloud-config
runcmd:
  - [ sh, -c, 'echo "seed ran, root has $(df -BM --output=size / | tail -1 | tr -d " M") MiB, keys $(ls /etc/ssh/ssh_host_*.pub | wc -l), state $(systemctl is-system-running)" > /dev/ttyS0' ]
`

// deployed makes a disk as a deploy leaves it: the image at the front, a NoCloud seed in a partition at the end, and unused
// space between them.
func deployed(t *testing.T, img *osimage.Image, hostname string) string {
	t.Helper()
	const diskMiB, seedMiB = 2560, 16
	disk := filepath.Join(t.TempDir(), "disk.raw")
	run(t, "", "cp", "--sparse=always", img.Path, disk)
	if err := os.Truncate(disk, diskMiB<<20); err != nil {
		t.Fatal(err)
	}
	start := (diskMiB - seedMiB - 1) << 11
	run(t, "", "sfdisk", "--quiet", "--relocate", "gpt-bak-std", disk)
	run(t, "start="+strconv.Itoa(start)+", size="+strconv.Itoa(seedMiB<<11)+", name=cidata\n", "sfdisk", "--quiet", "--append", "--no-tell-kernel", disk)
	run(t, "", "mkfs.vfat", "-F", "16", "-s", "2", "-n", "CIDATA", "--offset", strconv.Itoa(start), disk, strconv.Itoa(seedMiB<<10))
	dir := t.TempDir()
	for name, text := range map[string]string{"meta-data": "instance-id: i-1\nlocal-hostname: " + hostname + "\n", "user-data": userData} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, "", "mcopy", "-i", disk+"@@"+strconv.Itoa(start*512), filepath.Join(dir, name), "::"+name)
	}
	return disk
}

func run(t *testing.T, stdin, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// TestOSImageBoots takes a deployed disk through its first boot under both kinds of firmware: GRUB from the disk, the seed
// found and run, the root grown into the free space, a login on the serial port, and an obeyed power key.
func TestOSImageBoots(t *testing.T) {
	img := osImage(t)
	for _, firmware := range []app.Firmware{app.FirmwareBIOS, app.FirmwareUEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			dir := t.TempDir()
			seen := make(chan virtual.Line, 4096)
			m := machine(t, virtual.Config{
				Name: "node-" + string(firmware), Dir: dir, Firmware: firmware, UUID: "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5", Serial: "SN1",
				Password: "correct horse", CPUs: 2, Grace: 2 * time.Minute,
				Disks:  []virtual.Disk{{Path: deployed(t, img, "node-1"), Bus: virtual.NVMe, Serial: "BCD1"}},
				NICs:   []virtual.NIC{{MAC: "00:00:5e:00:53:01", Netdev: "user,restrict=on"}},
				OnLine: func(l virtual.Line) { seen <- l },
			})
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
			defer cancel()
			login := m.Console().Watch(regexp.MustCompile(`^node-1 login: `))
			reset(t, m, "On")
			seed := wait(ctx, t, seen, `seed ran, root has (\d+) MiB, keys (\d)`)
			prompt, err := login.Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("login prompt at %.1f s, %q at %.1f s", prompt.SincePower.Seconds(), seed.Text, seed.SincePower.Seconds())
			fields := regexp.MustCompile(`\d+`).FindAllString(seed.Text, -1)
			if size, _ := strconv.Atoi(fields[0]); size < 2200 {
				t.Errorf("the root did not grow: %s MiB", fields[0])
			}
			if fields[1] == "0" {
				t.Error("no SSH host keys")
			}
			reset(t, m, "GracefulShutdown")
			wait(ctx, t, seen, `reboot: Power down`)
		})
	}
}

// machine runs a virtual machine until the test ends.
func machine(t *testing.T, cfg virtual.Config) *virtual.Machine {
	t.Helper()
	m, err := virtual.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(t.Context()) }()
	t.Cleanup(func() {
		m.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("console of %s:\n%s", cfg.Name, m.Console().Tail())
		}
	})
	return m
}

// reset presses a button of a machine.
func reset(t *testing.T, m *virtual.Machine, kind string) {
	t.Helper()
	if err := m.Reset(kind); err != nil {
		t.Fatal(err)
	}
}

// wait reads console lines up to one that matches.
func wait(ctx context.Context, t *testing.T, lines <-chan virtual.Line, pattern string) virtual.Line {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		select {
		case l := <-lines:
			if re.MatchString(l.Text) {
				return l
			}
		case <-ctx.Done():
			t.Fatalf("no console line matches %q", pattern)
		}
	}
}

// TestOSImageLayout reads the image as an import does, which decides whether a deploy may put it on a machine.
func TestOSImageLayout(t *testing.T) {
	img := osImage(t)
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := layout.Detect(f, img.RawBytes, 0)
	if l.Table != "gpt" || l.SectorSize != 512 || !l.BIOS || !l.UEFI || len(l.Partitions) != 3 {
		t.Fatalf("layout %+v", l)
	}
	if root := l.Partitions[2]; root.FS != "ext4" || root.FSUUID != img.RootUUID {
		t.Errorf("root %+v", root)
	}
}
