package virtual

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// images serves path by path what a map holds, and counts.
type images struct {
	*httptest.Server
	got atomic.Int32
}

func serveImages(t *testing.T, content map[string][]byte) *images {
	t.Helper()
	s := &images{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.got.Add(1)
		b, ok := content[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s
}

// drive reads a drive until want says it is as expected.
func (c *bmcClient) drive(t *testing.T, path string, want func(d map[string]any) bool) map[string]any {
	t.Helper()
	limit := time.Now().Add(patience)
	for {
		d := c.want(t, 200, "GET", path, "")
		if want(d) {
			return d
		}
		if time.Now().After(limit) {
			t.Fatalf("the drive stays at %v", d)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func inserted(d map[string]any) bool { return d["Inserted"] == true }
func failed(d map[string]any) bool {
	s, _ := d["Status"].(map[string]any)
	return s["Health"] == "Critical"
}

// TestVirtualMedia fills and empties a drive, by either place and either form.
func TestVirtualMedia(t *testing.T) {
	web := serveImages(t, map[string][]byte{"/a.iso": []byte("iso a")})
	cfg := config(t)
	cfg.Dir = t.TempDir()
	fake := &Fake{}
	cfg.Hypervisor = fake
	m := start(t, cfg)
	c := client(t, m)
	for _, at := range []string{managerMedia, systemMedia} {
		if n := c.want(t, 200, "GET", at, "")["Members@odata.count"]; n != 2.0 {
			t.Fatalf("%s has %v drives", at, n)
		}
	}
	cd, twin := managerMedia+"/CD", systemMedia+"/CD"
	empty := c.want(t, 200, "GET", cd, "")
	if empty["Inserted"] != false || empty["Image"] != nil || empty["ConnectedVia"] != "NotConnected" {
		t.Errorf("an empty drive shows %v", empty)
	}
	c.want(t, 204, "POST", cd+"/Actions/"+insertAction, `{"Image":"`+web.URL+`/a.iso"}`)
	full := c.drive(t, twin, inserted)
	if full["Image"] != web.URL+"/a.iso" || full["ImageName"] != "a.iso" || full["ConnectedVia"] != "URI" || full["TransferProtocolType"] != "HTTP" || full["WriteProtected"] != true {
		t.Errorf("a full drive shows %v", full)
	}
	if full["@odata.etag"] == empty["@odata.etag"] {
		t.Error("the tag did not change")
	}
	c.want(t, 400, "POST", twin+"/Actions/"+insertAction, `{"Image":"`+web.URL+`/a.iso"}`)
	c.want(t, 204, "POST", twin+"/Actions/"+ejectAction, `{}`)
	c.want(t, 400, "POST", twin+"/Actions/"+ejectAction, "")
	if d := c.want(t, 200, "GET", cd, ""); d["Inserted"] != false || d["Image"] != nil {
		t.Errorf("after eject: %v", d)
	}

	c.want(t, 412, "PATCH", cd, `{"Image":"`+web.URL+`/a.iso"}`, `If-Match: W/"77"`)
	c.want(t, 204, "PATCH", cd, `{"Image":"`+web.URL+`/a.iso","Inserted":true}`)
	c.drive(t, cd, inserted)
	if d := c.want(t, 200, "PATCH", cd, `{"Image":null}`); d["Inserted"] != false {
		t.Errorf("after a PATCH of null: %v", d)
	}
}

// TestVirtualMediaReachesTheGuest follows the file from the drive into the machine and out again.
func TestVirtualMediaReachesTheGuest(t *testing.T) {
	web := serveImages(t, map[string][]byte{"/a.iso": []byte("iso a"), "/b.img": []byte("stick b")})
	cfg := config(t)
	cfg.Dir = t.TempDir()
	fake := &Fake{}
	cfg.Hypervisor = fake
	m := start(t, cfg)
	c := client(t, m)
	c.want(t, 204, "POST", managerMedia+"/CD/Actions/"+insertAction, `{"Image":"`+web.URL+`/a.iso"}`)
	c.drive(t, managerMedia+"/CD", inserted)
	c.want(t, 204, "POST", managerMedia+"/USB/Actions/"+insertAction, `{"Image":"`+web.URL+`/b.img","Inserted":true,"WriteProtected":true,"TransferMethod":"Stream","TransferProtocolType":"HTTP"}`)
	c.drive(t, managerMedia+"/USB", inserted)
	c.patch(t, `{"Boot":{"BootSourceOverrideTarget":"Cd","BootSourceOverrideEnabled":"Once"}}`, 200)
	c.reset(t, "On", 204)
	waitPower(t, m, "On")
	boot := fake.Boots()[0]
	if boot.Target != Cd || !boot.Override {
		t.Errorf("booted %+v", boot)
	}
	for file, want := range map[string]string{boot.CD: "iso a", boot.Stick: "stick b"} {
		if b, err := os.ReadFile(file); err != nil || string(b) != want {
			t.Errorf("%s holds %q (%v), want %q", file, b, err, want)
		}
	}
	c.want(t, 204, "POST", systemMedia+"/CD/Actions/"+ejectAction, "{}")
	c.reset(t, "ForceOff", 204) // the loop shows an ejection before or after it, and once
	waitPower(t, m, "Off")
	c.reset(t, "On", 204)
	waitPower(t, m, "On")
	if boots := fake.Boots(); boots[1].CD != "" || boots[1].Stick != boot.Stick || boots[1].Target != Hdd {
		t.Errorf("second boot %+v", boots[1])
	}
	m.Close()
	if left, _ := filepath.Glob(filepath.Join(cfg.Dir, "medium-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVirtualMediaRefusals(t *testing.T) {
	web := serveImages(t, map[string][]byte{"/empty.iso": nil})
	cfg := config(t)
	cfg.Dir = t.TempDir()
	m := start(t, cfg)
	c := client(t, m)
	cd := managerMedia + "/CD"
	for _, tc := range []struct{ body, id string }{
		{`{}`, "ActionParameterMissing"},
		{`{"Image":""}`, "ActionParameterMissing"},
		{`{"Image":7}`, "ActionParameterValueTypeError"},
		{`{"Image":"nfs://192.0.2.1/a.iso"}`, "ActionParameterValueFormatError"},
		{`{"Image":"a.iso"}`, "ActionParameterValueFormatError"},
		{`{"Image":"http://u:p@192.0.2.1/a.iso"}`, "ActionParameterValueFormatError"},
		{`{"Image":"http://192.0.2.1/` + strings.Repeat("a", 600) + `"}`, "ActionParameterValueFormatError"},
		{`{"Image":"http://192.0.2.1/a.iso","Speed":2}`, "ActionParameterUnknown"},
		{`{"Image":"http://192.0.2.1/a.iso","Inserted":false}`, "ActionParameterValueNotInList"},
		{`{"Image":"http://192.0.2.1/a.iso","WriteProtected":false}`, "ActionParameterValueNotInList"},
		{`{"Image":"http://192.0.2.1/a.iso","TransferProtocolType":"NFS"}`, "ActionParameterValueNotInList"},
		{`{"Image":"http://192.0.2.1/a.iso","TransferMethod":"Upload"}`, "ActionParameterValueNotInList"},
		{`{`, "MalformedJSON"},
	} {
		out := c.want(t, 400, "POST", cd+"/Actions/"+insertAction, tc.body)
		e, _ := out["error"].(map[string]any)
		if code, _ := e["code"].(string); !strings.HasSuffix(code, "."+tc.id) {
			t.Errorf("%s: %v, want %s", tc.body, code, tc.id)
		}
	}
	c.want(t, 404, "GET", managerMedia+"/DVD", "")
	c.want(t, 400, "PATCH", cd, `{"Id":"DVD"}`)
	c.want(t, 400, "PATCH", cd, `{"Inserted":true}`)

	// What cannot be fetched ends in an empty drive that says why.
	for _, image := range []string{web.URL + "/nothing.iso", web.URL + "/empty.iso", "http://127.0.0.1:1/a.iso"} {
		c.want(t, 204, "POST", cd+"/Actions/"+insertAction, `{"Image":"`+image+`"}`)
		if d := c.drive(t, cd, failed); d["Image"] != nil || d["Inserted"] != false {
			t.Errorf("%s: %v", image, d)
		}
	}
}

// TestVirtualMediaVerifiesCertificates is about servers of images with certificates: looked at only where asked.
func TestVirtualMediaVerifiesCertificates(t *testing.T) {
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "iso") }))
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.StartTLS()
	t.Cleanup(web.Close)
	roots := web.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, tc := range []struct {
		name    string
		strict  bool
		roots   bool
		refused bool
	}{{"not asked", false, false, false}, {"asked without a certificate", true, false, true}, {"asked with one", true, true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config(t)
			cfg.Dir = t.TempDir()
			if tc.roots {
				cfg.MediaRoots = roots
			}
			c := client(t, start(t, cfg))
			cd := managerMedia + "/CD"
			if tc.strict {
				c.want(t, 200, "PATCH", cd, `{"VerifyCertificate":true}`)
			}
			status := 204
			if tc.refused {
				status = 400
			}
			c.want(t, status, "POST", cd+"/Actions/"+insertAction, `{"Image":"`+web.URL+`/a.iso"}`)
			if !tc.refused {
				c.drive(t, cd, inserted)
			}
		})
	}
}

// elTorito is an image of a CD whose boot catalog names code, without a file system: all that a BIOS looks at.
func elTorito(code []byte) []byte {
	const sector = 2048
	b := make([]byte, 32*sector)
	record := b[17*sector:]
	copy(record, "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(record[0x47:], 19)
	catalog := b[19*sector:]
	copy(catalog, []byte{1, 0}) // validation entry, x86
	catalog[0x1e], catalog[0x1f] = 0x55, 0xaa
	binary.LittleEndian.PutUint16(catalog[0x1c:], 0x55aa) // all words sum to zero
	catalog[0x20] = 0x88                                  // bootable, no emulation
	binary.LittleEndian.PutUint16(catalog[0x26:], 4)
	binary.LittleEndian.PutUint32(catalog[0x28:], 20)
	copy(b[20*sector:], code)
	return b
}

// TestQEMUBootsVirtualMedia boots once from an image that came over HTTP, as a CD and as a stick, has it ejected under the
// running guest, and then finds the disk.
func TestQEMUBootsVirtualMedia(t *testing.T) {
	needQEMU(t)
	stick := append(bootCode("booted from medium"), make([]byte, 1<<20)...)
	web := serveImages(t, map[string][]byte{"/Cd.iso": elTorito(bootCode("booted from medium")), "/Usb.iso": stick})
	for target, drive := range map[Target]string{Cd: systemMedia + "/CD", Usb: systemMedia + "/USB"} {
		t.Run(string(target), func(t *testing.T) {
			dir := t.TempDir()
			disk := filepath.Join(dir, "disk.raw")
			write(t, disk, append(bootCode("booted from disk", thenPowerOff...), make([]byte, 1<<20)...))
			cfg := config(t)
			onLine, out := lines(t)
			var log bytes.Buffer
			cfg.Dir, cfg.OnLine, cfg.Hypervisor, cfg.Log = dir, onLine, nil, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			cfg.Disks = []Disk{{Path: disk}}
			cfg.NICs = nil
			m := start(t, cfg)
			c := client(t, m)
			c.want(t, 204, "POST", drive+"/Actions/"+insertAction, `{"Image":"`+web.URL+`/`+string(target)+`.iso"}`)
			c.drive(t, drive, inserted)
			c.patch(t, `{"Boot":{"BootSourceOverrideTarget":"`+string(target)+`","BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"Legacy"}}`, 200)
			c.reset(t, "On", 204)
			until(t, out, "booted from medium")
			c.want(t, 204, "POST", drive+"/Actions/"+ejectAction, "{}")
			c.reset(t, "ForceRestart", 204)
			until(t, out, "booted from disk")
			waitPower(t, m, "Off")
			m.Close()
			if log.Len() > 0 {
				t.Errorf("warnings: %s", log.String())
			}
		})
	}
}
