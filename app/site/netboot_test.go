package site

import (
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/netboot"
)

// Nothing is fetched for a user from where only the appliance gets to.
func TestFetcherRefusesWhatOnlyTheApplianceReaches(t *testing.T) {
	s := &Site{registry: drivers.New(drivers.Config{Logger: slog.New(slog.DiscardHandler)})}
	s.registry.Remember(t.Context(), "https://192.0.2.77:443")
	s.registry.Remember(t.Context(), "[2001:db8::77]")
	c := s.fetcher()
	for _, url := range []string{
		"http://127.0.0.1:1/", "http://127.9.9.9:1/", "http://[::1]:1/", "http://[::ffff:127.0.0.1]:1/", "http://localhost:1/", "http://0.0.0.0:1/", "http://[::]:1/",
		"http://169.254.169.254/latest", "http://[fe80::1%25lo]:1/", "http://224.0.0.1:1/",
		"http://192.0.2.77/", "http://192.0.2.77:8080/", "https://[::ffff:192.0.2.77]/", "http://[2001:db8::77]/",
	} {
		resp, err := c.Get(url)
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || app.CodeOf(err) != app.Forbidden {
			t.Errorf("%s gave %v", url, err)
		}
	}
	if _, ok := c.Transport.(*http.Transport); !ok || c.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy would fetch from anywhere")
	}
}

func TestMachineIsFoundByMACAndByEitherUUIDOrder(t *testing.T) {
	db := openStore(t)
	p := port67{&Site{db: db, log: slog.New(slog.DiscardHandler)}}
	m := &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady, UUID: "00112233-4455-6677-8899-aabbccddeeff", NICs: []app.NIC{{MAC: "00:00:5e:00:53:01", Confirmed: true}}}
	if err := db.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]netboot.Client{
		"MAC":                 {MACs: []app.MAC{"00:00:5e:00:53:01"}},
		"second MAC":          {MACs: []app.MAC{"00:00:5e:00:53:77", "00:00:5e:00:53:01"}},
		"UUID":                {UUID: "00112233-4455-6677-8899-aabbccddeeff"},
		"UUID, other order":   {UUID: "33221100-5544-7766-8899-aabbccddeeff"},
		"UUID and a new port": {UUID: "33221100-5544-7766-8899-aabbccddeeff", MACs: []app.MAC{"00:00:5e:00:53:02"}},
	} {
		if got, q, err := p.find(t.Context(), c); err != nil || got == nil || got.ID != "m-1" || q != noQuestion {
			t.Errorf("%s: %+v, %q, %v", name, got, q, err)
		}
	}
	if got, _, err := p.find(t.Context(), netboot.Client{MACs: []app.MAC{"00:00:5e:00:53:99"}, UUID: "99999999-5544-7766-8899-aabbccddeeff"}); got != nil || err != nil {
		t.Errorf("a stranger is %+v, %v", got, err)
	}
	got, err := db.Machine(t.Context(), "m-1")
	if err != nil || len(got.NICs) != 2 || got.NICs[1].MAC != "00:00:5e:00:53:02" || got.NICs[1].Confirmed {
		t.Errorf("the port it netbooted from is not proposed: %+v, %v", got.NICs, err)
	}
	// Two boards with one UUID are told apart by their MACs only.
	twin := &app.Machine{ID: "m-2", Name: "node2", State: app.StateReady, UUID: m.UUID}
	if err := db.CreateMachine(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	if got, _, err := p.find(t.Context(), netboot.Client{UUID: m.UUID}); got != nil || err != nil {
		t.Errorf("one of two twins was chosen: %+v, %v", got, err)
	}
}

func TestUnknownMachineIsKeptForAPerson(t *testing.T) {
	db := openStore(t)
	p := port67{&Site{db: db, log: slog.New(slog.DiscardHandler)}}
	if target, err := p.Target(t.Context(), netboot.Client{MACs: []app.MAC{"00:00:5e:00:53:99"}}); err != nil || target.Kind != netboot.KindNone || target.MachineID != "" {
		t.Errorf("a stranger boots %+v, %v", target, err)
	}
	p.Discovered(t.Context(), app.Discovery{MAC: "00:00:5e:00:53:99", Vendor: "<b>", Last: noon})
	if all, err := db.ListDiscoveries(t.Context()); err != nil || len(all) != 1 || all[0].MAC != "00:00:5e:00:53:99" {
		t.Errorf("discoveries %+v, %v", all, err)
	}
}

func TestBootFilesStayInTheirDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "ramdisk")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{filepath.Join(parent, "secret"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "sub", "x")} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", ".", "..", "../secret", "sub/x", `..\secret`, "/etc/passwd", "nothing"} {
		if f, err := openBelow(dir, name); err == nil {
			st, serr := f.Stat()
			_ = f.Close()
			if serr != nil || !st.IsDir() {
				t.Errorf("%q was opened", name)
			}
		}
	}
	f, err := openBelow(dir, "vmlinuz")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if w, err := (&bootFiles{}).health(t.Context()); err != nil || len(w) != 1 || w[0].WayOut == "" {
		t.Errorf("no ramdisk is told as %+v, %v", w, err)
	}
}

func TestOwnLoadersComeFirst(t *testing.T) {
	own, packaged := fstest.MapFS{"ipxe.efi": {Data: []byte("own")}}, fstest.MapFS{"ipxe.efi": {Data: []byte("packaged")}, "undionly.kpxe": {Data: []byte("bios")}}
	both := firstOf{own, packaged}
	for name, want := range map[string]string{"ipxe.efi": "own", "undionly.kpxe": "bios"} {
		if b, err := fs.ReadFile(both, name); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	if _, err := both.Open("other"); err == nil {
		t.Error("a file that is nowhere was opened")
	}
}

func TestPartsCanBeFound(t *testing.T) {
	all, err := Parts()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]ramdisk.Part{}
	for _, p := range all {
		if p.In == "bcd" {
			found[p.Name] = p
		}
		if p.Name == "" || p.Version == "" || !strings.HasPrefix(p.Source, "http") || p.License == "" {
			t.Errorf("a part that nobody could find: %+v", p)
		}
	}
	for name, license := range map[string]string{"Go standard library": "BSD-3-Clause", "htmx.org": "0BSD", "htmx-ext-sse": "0BSD"} {
		if p := found[name]; p.License != license || !strings.Contains(p.Source, p.Version) {
			t.Errorf("%s is listed as %+v", name, p)
		}
	}
}
