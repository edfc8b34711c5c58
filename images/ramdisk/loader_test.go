package ramdisk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/google/go-cmp/cmp"
)

func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(dir+n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFindIPXE: the operator's program goes before Debian's, one by one; a missing or empty one is named.
func TestFindIPXE(t *testing.T) {
	debian, own := t.TempDir(), t.TempDir()
	put(t, debian, "undionly.kpxe", "snponly.efi", "ipxe.efi")
	put(t, own, "snponly.efi")
	l, err := FindIPXE(own, debian)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range l.Files {
		got = append(got, f.Firmware+" "+f.Path)
	}
	want := []string{"bios " + debian + "/undionly.kpxe", "uefi " + own + "/snponly.efi", "uefi " + debian + "/ipxe.efi"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := os.Truncate(filepath.Join(debian, "ipxe.efi"), 0); err != nil {
		t.Fatal(err)
	}
	e, ok := app.AsError(second(FindIPXE(own, debian)))
	if !ok || e.Reason != "loader-missing" || e.WayOut == "" {
		t.Errorf("%v", e)
	}
}

// TestLoaderBesideKernel: the programs are copied, hashed and listed among the third-party parts.
func TestLoaderBesideKernel(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	put(t, dir, "undionly.kpxe", "snponly.efi", "ipxe.efi")
	l, err := FindIPXE(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Build(t.Context(), Config{KernelDeb: kernelDeb(t, "", ""), Modules: []string{"virtio_net"}, Agent: testAgent(), Loader: l, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(os.DirFS(out)); err != nil {
		t.Error(err)
	}
	for _, f := range l.Files {
		if i, ok := m.File(f.Name); !ok || i.Bytes == 0 {
			t.Errorf("%s: %+v", f.Name, i)
		}
	}
	if p := m.Parts[len(m.Parts)-1]; p.In != InLoader || p.Name != "ipxe" {
		t.Errorf("%+v", p)
	}
}

// TestStubBesideKernel: the stub is copied, hashed and listed among the third-party parts, and can be taken out again.
func TestStubBesideKernel(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	if e, ok := app.AsError(second(FindStub(dir))); !ok || e.Reason != "stub-missing" || e.WayOut == "" {
		t.Errorf("%v", e)
	}
	put(t, dir, StubFile)
	if e, ok := app.AsError(second(FindStub(dir))); !ok || e.Reason != "stub-unusable" {
		t.Errorf("%v", e)
	}
	if err := os.WriteFile(filepath.Join(dir, StubFile), []byte("MZ stub"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := FindStub(t.TempDir(), dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Build(t.Context(), Config{KernelDeb: kernelDeb(t, "", ""), Modules: []string{"virtio_net"}, Agent: testAgent(), Stub: s, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(os.DirFS(out)); err != nil {
		t.Error(err)
	}
	if i, ok := m.File(StubFile); !ok || i.Bytes != int64(len("MZ stub")) {
		t.Errorf("%+v", i)
	}
	again, err := StubFrom(os.DirFS(out))
	if d := cmp.Diff(s, again); d != "" || err != nil || again.Part.Name != "systemd-stub" {
		t.Errorf("%v %s", err, d)
	}
}

func TestInstalledVersion(t *testing.T) {
	p := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(p, []byte("Package: ipxe-qemu\nVersion: 9\n\nPackage: ipxe\nStatus: install ok installed\nVersion: 1.0.0+git-1\n\nPackage: z\nVersion: 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v := installedVersion(p, "ipxe"); v != "1.0.0+git-1" {
		t.Error(v)
	}
	if v := installedVersion(p, "absent"); v != "" {
		t.Error(v)
	}
}
