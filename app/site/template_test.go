package site_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
)

const (
	imageName   = "tiny"
	machineName = "node1"
)

// template is the data directory of an appliance with an administrator, a subnet that is on, an image and a commissioned
// machine. It is made once, by the public API, and copied for each case.
var template struct {
	once  sync.Once
	dir   string
	token string
	ok    bool
}

func removeTemplate() {
	if template.dir != "" {
		_ = os.RemoveAll(template.dir)
	}
}

// shortDir makes a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bcd-site-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// ready gives a running appliance, not started yet, and its commissioned machine, which is off.
func ready(t *testing.T) (*rig, *computer) {
	t.Helper()
	return readyIn(t, shortDir(t))
}

// readyIn is ready in an empty directory.
func readyIn(t *testing.T, dir string) (*rig, *computer) {
	t.Helper()
	template.once.Do(func() { makeTemplate(t) })
	if !template.ok {
		t.Fatal("the template could not be made")
	}
	if err := os.CopyFS(dir, os.DirFS(template.dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"site.key", "secrets.key", "console.key", "agent.key"} {
		if err := os.Chmod(filepath.Join(dir, "keys", k), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, dir)
	r.token = template.token
	c := newComputer(t, r, 1)
	moveBMC(t, dir, c)
	return r, c
}

// moveBMC tells the copied store where the copy's BMC is.
func moveBMC(t *testing.T, dir string, c *computer) {
	t.Helper()
	syscall.ForkLock.RLock() // a process forked meanwhile would hold the store's lock until it became another program
	defer syscall.ForkLock.RUnlock()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.UpdateMachine(t.Context(), machineName, func(m *app.Machine) error {
		for kind, b := range m.Drivers {
			b.Config = bytes.ReplaceAll(b.Config, []byte(m.BMC.Address), []byte(c.bmc.URL()))
			b.Config = bytes.ReplaceAll(b.Config, []byte(m.BMC.SPKI), []byte(c.bmc.SPKI()))
			m.Drivers[kind] = b
		}
		m.BMC.Address, m.BMC.SPKI = c.bmc.URL(), c.bmc.SPKI()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// putSubnet turns answering on for the loopback network, which the API refuses for what it is: no machine is there.
func putSubnet(t *testing.T, dir string) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = db.PutSubnet(t.Context(), &app.Subnet{ID: "loopback", CIDR: netip.MustParsePrefix("127.0.0.0/8"), Interface: "lo", Mode: app.SubnetFull,
		PoolStart: netip.MustParseAddr("127.250.0.10"), PoolEnd: netip.MustParseAddr("127.250.0.20"), LeaseTime: app.Duration(time.Hour)})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func makeTemplate(t *testing.T) {
	dir, err := os.MkdirTemp("", "bcd-site-")
	if err != nil {
		t.Fatal(err)
	}
	template.dir = dir
	putSubnet(t, dir)
	r := newRig(t, dir)
	r.start("")
	var who api.Whoami
	r.last.http.Jar, err = cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.must(http.MethodPost, "/api/v1/setup", api.SetupInput{Code: r.last.ready.Code, Name: "admin", Password: "a long enough password"}, &who)
	var token api.NewToken
	r.must(http.MethodPost, "/api/v1/tokens", api.TokenInput{Name: "test", Permissions: who.Permissions, ExpiresIn: app.Duration(24 * time.Hour)}, &token)
	r.token, template.token = token.Value, token.Value
	r.must(http.MethodPut, "/api/v1/images/"+imageName, tinyImage(), nil)
	c := newComputer(t, r, 1)
	enroll(r, c, machineName)
	r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("commissioning ended %s: %+v", n.State, r.machine(machineName))
	}
	r.stop()
	template.ok = true
}

func enroll(r *rig, c *computer, name string) {
	r.t.Helper()
	in := api.EnrollInput{Name: name, MACs: []app.MAC{c.mac}, BMC: &api.BMCInput{Driver: "redfish", Address: c.bmc.URL(),
		Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}}}
	r.must(http.MethodPost, "/api/v1/machines", in, nil)
}

// tinyImage is a disk of 4 MiB with a GPT, boot code and a BIOS boot partition.
func tinyImage() []byte {
	const sectors = 8192
	img := make([]byte, sectors*512)
	le := binary.LittleEndian
	copy(img, bytes.Repeat([]byte{0x90}, 440)) // boot code
	copy(img[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	le.PutUint32(img[458:], sectors-1)
	img[510], img[511] = 0x55, 0xaa
	entries := make([]byte, 128*128)
	copy(entries, []byte{0x48, 0x61, 0x68, 0x21, 0x49, 0x64, 0x6f, 0x6e, 0x74, 0x4e, 0x65, 0x65, 0x64, 0x45, 0x46, 0x49}) // BIOS boot
	entries[16] = 1                                                                                                       // its own GUID
	le.PutUint64(entries[32:], 2048)
	le.PutUint64(entries[40:], 4095)
	copy(img[2048*512:], bytes.Repeat([]byte("core.img"), 64))
	head := func(at, other, table uint64) {
		h := img[at*512 : at*512+92]
		copy(h, "EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00")
		le.PutUint64(h[24:], at)
		le.PutUint64(h[32:], other)
		le.PutUint64(h[40:], 34)
		le.PutUint64(h[48:], sectors-34)
		h[56] = 2 // the disk's GUID
		le.PutUint64(h[72:], table)
		le.PutUint32(h[80:], 128)
		le.PutUint32(h[84:], 128)
		le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
		le.PutUint32(h[16:], 0)
		le.PutUint32(h[16:], crc32.ChecksumIEEE(h))
		copy(img[table*512:], entries)
	}
	head(1, sectors-1, 2)
	head(sectors-1, 1, sectors-33)
	return img
}
