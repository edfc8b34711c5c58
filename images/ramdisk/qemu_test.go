package ramdisk

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/bmc/virtual"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"golang.org/x/crypto/ssh"
)

// built gives the output directory of make ramdisk for a flavour, or skips.
func built(t *testing.T, flavour string) string {
	t.Helper()
	dir := filepath.Join("embed", "dist", flavour)
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err != nil {
		t.Skipf("no ramdisk %q was built: make ramdisk", flavour)
	}
	return dir
}

// guest is a machine in QEMU, its serial console and its control socket.
type guest struct {
	t     *testing.T
	start time.Time
	lines chan string
	seen  []string
	in    io.Writer
	qmp   net.Conn
	ended chan error
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?=]*[a-zA-Z]|\x1bc|\r`)

// boot starts the ramdisk with the boot data in front, a virtio network port whose port 22 is at addr, and what args add.
func boot(t *testing.T, flavour, addr string, data agentv1.BootData, args ...string) *guest {
	t.Helper()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("QEMU is not installed: apt-get install qemu-system-x86")
	}
	dir, tmp := built(t, flavour), t.TempDir()
	first, err := BootDataCPIO(data)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := os.ReadFile(filepath.Join(dir, InitramfsFile))
	if err != nil {
		t.Fatal(err)
	}
	initrd := filepath.Join(tmp, "initrd")
	if err := os.WriteFile(initrd, append(first, rest...), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(tmp, "qmp"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	args = append([]string{
		"-cpu", virtual.Processor, "-M", "q35", "-m", "512", "-nographic", "-no-reboot", "-uuid", "11111111-2222-3333-4444-555555555555",
		"-monitor", "none", "-serial", "stdio", "-qmp", "unix:" + l.Addr().String(),
		"-kernel", filepath.Join(dir, KernelFile), "-initrd", initrd, "-append", "console=ttyS0",
		"-netdev", "user,id=n0,restrict=on,hostfwd=tcp:" + addr + "-:22", "-device", "virtio-net-pci,netdev=n0,romfile=",
	}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, qemu, args...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	g := &guest{t: t, start: time.Now(), lines: make(chan string, 4096), in: in, ended: make(chan error, 1)}
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			g.lines <- escapes.ReplaceAllString(s.Text(), "")
		}
		close(g.lines)
		g.ended <- cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() { cancel(); <-done })
	if g.qmp, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.qmp.Close() })
	return g
}

// expect waits for a line and gives its parts.
func (g *guest) expect(pattern string) []string {
	g.t.Helper()
	re := regexp.MustCompile(pattern)
	for l := range g.lines {
		g.seen = append(g.seen, l)
		if m := re.FindStringSubmatch(l); m != nil {
			g.t.Logf("%6.2f s  %s", time.Since(g.start).Seconds(), l)
			return m
		}
	}
	g.t.Fatalf("the guest ended without %q; its last lines:\n%s", pattern, strings.Join(g.seen[max(0, len(g.seen)-40):], "\n"))
	return nil
}

// command runs one on QEMU itself.
func (g *guest) command(name string) {
	g.t.Helper()
	fmt.Fprintf(g.qmp, `{"execute":"qmp_capabilities"}{"execute":%q}`, name)
	dec := json.NewDecoder(g.qmp)
	for range 3 { // greeting and two answers
		var m map[string]any
		if err := dec.Decode(&m); err != nil || m["error"] != nil {
			g.t.Fatalf("QEMU: %v %v", m, err)
		}
	}
}

// freePort gives a loopback address that nobody listens on, and nobody will: it is of this process alone.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", os.Getpid()>>8&0xff, os.Getpid()&0xff|1))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// sshKey makes a login key.
func sshKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s, string(ssh.MarshalAuthorizedKey(s.PublicKey()))
}

// sshRun runs a command on the guest.
func sshRun(addr string, key ssh.Signer, command string) (string, error) {
	c, err := ssh.Dial("tcp", addr, &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, Timeout: time.Minute,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // the guest's key is of this boot; the way to it is loopback
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	ch, reqs, err := c.OpenChannel("session", nil)
	if err != nil {
		return "", err
	}
	defer ch.Close()
	go ssh.DiscardRequests(reqs)
	// u-root's sshd answers the request only when the command has ended, and the command ends with its input.
	if _, err := ch.SendRequest("exec", false, ssh.Marshal(struct{ Command string }{command})); err != nil {
		return "", err
	}
	if err := ch.CloseWrite(); err != nil {
		return "", err
	}
	out, err := bufio.NewReader(ch).ReadString('\n')
	return out, err
}

func disk(t *testing.T, name string) string {
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p, 32<<20); err != nil {
		t.Fatal(err)
	}
	return "if=none,format=raw,id=" + name + ",file=" + p
}

// TestBootServer boots Debian's generic kernel, whose drivers are all modules: network, NVMe and AHCI disks and the IPMI
// interface come up by their modaliases, a rescue shell answers, the kernel gets a file system it asks for by name, and
// the power key ends it all cleanly.
func TestBootServer(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	key, authorized := sshKey(t)
	addr := freePort(t)
	g := boot(t, Server, addr, agentv1.BootData{MachineID: "m1", Rescue: &agentv1.Rescue{AuthorizedKeys: []string{authorized}}},
		"-drive", disk(t, "nv"), "-device", "nvme,drive=nv,serial=NV1", "-drive", disk(t, "sata"), "-device", "ide-hd,drive=sata,bus=ide.0",
		"-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-kcs,bmc=bmc")
	g.expect(`Linux version 6\.`)
	g.expect(`^bcd ramdisk: up`)
	// One line, because a line editor that takes over the terminal may lose what was typed ahead.
	paths := []string{
		"/sys/bus/virtio/drivers/virtio_net", "/sys/block/nvme0n1", "/sys/block/sda", "/dev/ipmi0", "/sys/module/button", "/" + agentv1.BootDataPath,
	}
	fmt.Fprintf(g.in, "until grep -q 'settled.:true' /run/bcd/early.json; do sleep 0.1; done; for p in %s; do ls -d $p >/dev/null && echo has:$p:; done; "+
		"ls -l /bcd; mount -t xfs /dev/sda /mnt; lsmod | grep '^xfs'; dhclient -ipv6=false eth0; echo net:up:\r", strings.Join(paths, " "))
	for _, p := range paths {
		g.expect("has:" + p + ":")
	}
	g.expect(`-rw-------.* boot.json`)
	g.expect(`xfs  +\d`)
	g.expect(`net:up:`)
	out, err := sshRun(addr, key, "uname -r")
	if err != nil || !strings.Contains(out, "-amd64") {
		t.Errorf("by SSH: %q %v", out, err)
	}
	g.command("system_powerdown")
	g.expect(`the power key was pressed`)
	g.expect(`bcd ramdisk: power off`)
	if err := <-g.ended; err != nil {
		t.Errorf("QEMU: %v", err)
	}
}

// TestBootLab is the fast lane.
func TestBootLab(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	g := boot(t, Lab, freePort(t), agentv1.BootData{MachineID: "m1"}, "-drive", disk(t, "nv"), "-device", "nvme,drive=nv,serial=NV1")
	g.expect(`^bcd ramdisk: up`)
	g.expect(`driver=virtio_net`)
	g.command("system_powerdown")
	g.expect(`bcd ramdisk: power off`)
	if err := <-g.ended; err != nil {
		t.Errorf("QEMU: %v", err)
	}
}

// TestBuiltSize holds the shipped ramdisks to their size and their manifests.
func TestBuiltSize(t *testing.T) {
	for _, flavour := range []string{Server, Lab} {
		t.Run(flavour, func(t *testing.T) {
			m, err := Verify(os.DirFS(built(t, flavour)))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: kernel and initramfs %d bytes, %d modules, %s", m.Kernel.Package, m.Kernel.Version, m.BootBytes(), len(m.Modules), m.Compressor)
			if m.BootBytes() > MaxBytes {
				t.Errorf("%d bytes are more than %d", m.BootBytes(), MaxBytes)
			}
		})
	}
}
