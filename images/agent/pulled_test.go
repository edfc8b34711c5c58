package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/agent/agenttest"
	"github.com/better-compute/bcd/images/chunk"
	"github.com/better-compute/bcd/images/ramdisk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// TestGuestDiskPulled takes a disk out of a QEMU machine while an image is written to it: the write ends with an error that
// names the disk and says that it is gone, the agent goes on, and the other disk is as it was.
func TestGuestDiskPulled(t *testing.T) {
	dist := ramdiskParts(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site := agenttest.NewSite(t)
	site.Serve(t, l)
	dir, err := os.MkdirTemp("", "bcd") // short enough for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	image := noise(48 << 20)
	var served atomic.Int32
	pull := sync.OnceFunc(func() { unplug(t, filepath.Join(dir, "qmp"), "pull") })
	order, boot := imageServer(t, image, func() {
		if served.Add(1) > 1 { // the first chunks are written, the rest come when the disk is gone
			pull()
		}
	})
	data := site.Boot()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	data.SiteURLs, data.BootURLs = []string{"https://10.0.2.2:" + port}, []string{boot}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, bytes.Repeat([]byte{0xa5}, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 64<<20); err != nil {
		t.Fatal(err)
	}
	small(t, site, dist, initrd(t, dist, *data), "-qmp", "unix:"+filepath.Join(dir, "qmp")+",server=on,wait=off", "-device", "virtio-scsi-pci",
		"-drive", "if=none,id=a,format=raw,file="+disk, "-device", "scsi-hd,id=pull,drive=a,serial=PULL1",
		"-drive", "if=none,id=b,format=raw,file="+other, "-device", "scsi-hd,drive=b,serial=STAY1")
	order.Disk = agentv1.DiskTarget{Serial: "PULL1"}
	site.Send(site.Command("write", agentv1.KindWrite, order))
	r := site.Result("write")
	if r.State != "failed" || r.Error == nil || r.Error.Reason != "disk-gone" || !strings.Contains(r.Error.Message, "PULL1") || r.Error.WayOut == "" {
		t.Errorf("a disk that was pulled: %s %+v", r.State, r.Error)
	}
	t.Logf("%+v", r.Error)
	site.Send(site.Command("inventory", agentv1.KindInventory, struct{}{}))
	var inv agentv1.Inventory
	decode(t, site.Result("inventory"), &inv)
	if len(inv.Disks) != 1 || inv.Disks[0].Serial != "STAY1" {
		t.Errorf("the disks are %+v", inv.Disks)
	}
	if b, err := os.ReadFile(other); err != nil || len(bytes.Trim(b, "\xa5")) != 0 {
		t.Errorf("the other disk was written to: %v", err)
	}
}

// ramdiskParts finds the ramdisk that make ramdisk left, or skips.
func ramdiskParts(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: boots a machine")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("left out: QEMU is not installed: apt-get install qemu-system-x86")
	}
	dist := "../ramdisk/embed/dist/lab"
	if _, err := os.Stat(filepath.Join(dist, ramdisk.InitramfsFile)); err != nil {
		t.Skip("left out: no ramdisk was built: make ramdisk")
	}
	return dist
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// imageServer imports an image into a chunk store and serves it, as the guest sees it; each is called before a pack is served.
func imageServer(t *testing.T, raw []byte, each func()) (order agentv1.Write, url string) {
	t.Helper()
	dir := t.TempDir()
	store, err := chunk.OpenStore(filepath.Join(dir, "packs"), filepath.Join(dir, "tmp"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b, err := store.NewBuild()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(context.Background(), bytes.NewReader(raw), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	index, err := b.Index().Encode()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/index", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(index) })
	files := http.StripPrefix("/packs/", http.FileServer(http.Dir(filepath.Join(dir, "packs"))))
	mux.HandleFunc("/packs/", func(w http.ResponseWriter, r *http.Request) { each(); files.ServeHTTP(w, r) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return agentv1.Write{ImageID: "img-1", IndexURL: "/index", IndexSHA256: chunk.Digest(index), RawBytes: int64(len(raw)), SectorSize: 512}, "http://10.0.2.2:" + port
}

// small boots a guest that has what the arguments say, and whose agent calls the site. It ends with the test.
func small(t *testing.T, site *agenttest.Site, dist, initrd string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guestTime)
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{"-cpu", virtual.Processor, "-M", "q35", "-m", "768", "-smp", "2", "-nographic", "-no-reboot",
		"-monitor", "none", "-serial", "stdio", "-kernel", filepath.Join(dist, ramdisk.KernelFile), "-initrd", initrd, "-append", "console=ttyS0",
		"-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile="}, args...)...)
	if os.Getenv("BCD_TEST_CONSOLE") != "" {
		cmd.Stdout = os.Stderr
	}
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	site.MachineEnds(done)
	t.Cleanup(func() { cancel(); <-done })
}

// unplug takes a device out of a machine and returns when the guest has let go of it.
func unplug(t *testing.T, socket, device string) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	for _, cmd := range []string{"qmp_capabilities", `device_del","arguments":{"id":"` + device + `"},"id":"x`} {
		if _, err := io.WriteString(c, `{"execute":"`+cmd+`"}`+"\n"); err != nil {
			t.Error(err)
			return
		}
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		var m struct {
			Event string
			Error json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Error != nil {
			t.Errorf("QEMU says %s, %v", lines.Bytes(), err)
			return
		}
		if m.Event == "DEVICE_DELETED" {
			return
		}
	}
	t.Error("QEMU ended before the disk was out")
}
