package ramdisk

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// entryOf is a file or, with a link, a symbolic link of a package made for a test.
type entryOf struct{ name, link, body string }

// writeDeb makes a Debian package with uncompressed members.
func writeDeb(t *testing.T, name, control string, entries ...entryOf) string {
	t.Helper()
	ar := bytes.NewBufferString("!<arch>\n")
	member := func(name string, body []byte) {
		fmt.Fprintf(ar, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", len(body))
		ar.Write(body)
		ar.Write(make([]byte, len(body)%2))
	}
	tarOf := func(entries ...entryOf) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, e := range entries {
			h := &tar.Header{Name: e.name, Size: int64(len(e.body)), Mode: 0o644, Typeflag: tar.TypeReg}
			if e.link != "" {
				h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, e.body)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	member("debian-binary", []byte("2.0\n"))
	member("control.tar", tarOf(entryOf{name: "./control", body: control}))
	member("data.tar", tarOf(entries...))
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, ar.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// object is a minimal ELF64 file; with modinfo it is a kernel module, without it a static program.
func object(modinfo string) string {
	const ehsize, shsize = 64, 64
	names := "\x00.modinfo\x00.shstrtab\x00"
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: ehsize, Shentsize: shsize}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	var b bytes.Buffer
	if modinfo == "" {
		binary.Write(&b, binary.LittleEndian, h)
		return b.String()
	}
	h.Type, h.Shnum, h.Shstrndx, h.Shoff = uint16(elf.ET_REL), 3, 2, uint64(ehsize+len(modinfo)+len(names))
	binary.Write(&b, binary.LittleEndian, h)
	b.WriteString(modinfo + names)
	for _, s := range []elf.Section64{{}, {Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: ehsize, Size: uint64(len(modinfo))},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: ehsize + uint64(len(modinfo)), Size: uint64(len(names))}} {
		binary.Write(&b, binary.LittleEndian, s)
	}
	return b.String()
}

func compressed(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const kernelControl = "Package: linux-image-6.1.0-9-amd64\nVersion: 6.1.9-1\nArchitecture: amd64\nSource: linux-signed-amd64 (6.1.9+1)\n"

// kernelDeb has its modules below prefix, the network driver's file named with ext and packed accordingly.
func kernelDeb(t *testing.T, prefix, ext string) string {
	net := object("alias=virtio:d00000001v*\x00depends=virtio-ring\x00firmware=net/a.bin\x00firmware=net/b.bin\x00firmware=../../etc/x\x00")
	if ext != "" {
		net = compressed(t, net)
	}
	dir := "./" + prefix + "lib/modules/6.1.0-9-amd64/"
	return writeDeb(t, "kernel.deb", kernelControl,
		entryOf{name: "./boot/vmlinuz-6.1.0-9-amd64", body: "kernel"},
		entryOf{name: dir + "modules.builtin", body: "kernel/fs/ext4/ext4.ko\n"},
		entryOf{name: dir + "kernel/drivers/virtio_net.ko" + ext, body: net},
		entryOf{name: dir + "kernel/drivers/virtio_ring.ko", body: object("license=GPL\x00")},
		entryOf{name: dir + "kernel/drivers/other.ko", body: object("license=GPL\x00")})
}

func testAgent() *Agent {
	return &Agent{Binary: []byte(object("")), Go: "go1.26", Commands: []string{"bcd-ramdisk", "gosh", "ls"},
		Parts: []Part{{In: InBusybox, Name: "example.org/m", Version: "v1.0.0", Source: "https://pkg.go.dev/example.org/m@v1.0.0"}}}
}

// content lists an initramfs: mode and name, and the body of short files.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, InitramfsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string]string{}
	if err := readInitramfs(f, func(e entry) { files[e.Name] = fmt.Sprintf("%o %s", e.Mode, e.Body) }); err != nil {
		t.Fatal(err)
	}
	return files
}

// TestBuild looks into what came out, for packages of this and of later Debian releases.
func TestBuild(t *testing.T) {
	for name, deb := range map[string]string{"bookworm": kernelDeb(t, "", ""), "merged usr, packed modules": kernelDeb(t, "usr/", ".zst")} {
		t.Run(name, func(t *testing.T) {
			firmware := writeDeb(t, "firmware.deb", "Package: firmware-net\nVersion: 1-1\nArchitecture: all\n",
				entryOf{name: "./lib/firmware/net/a.bin", link: "real/a-1.0.bin"}, entryOf{name: "./lib/firmware/net/real/a-1.0.bin", body: "blob"},
				entryOf{name: "./lib/firmware/gpu/huge.bin", body: "not for us"})
			out := filepath.Join(t.TempDir(), "out")
			var steps []string
			m, err := Build(t.Context(), Config{KernelDeb: deb, FirmwareDebs: []string{firmware}, Modules: []string{"virtio-net", "ext4", "ntfs3"},
				Agent: testAgent(), Out: out, Progress: func(s string) { steps = append(steps, s) }})
			if err != nil {
				t.Fatal(err)
			}
			files := content(t, out)
			lib := "lib/modules/6.1.0-9-amd64/"
			for name, want := range map[string]string{
				"init": "120777 bbin/bcd-ramdisk", "bbin/bcd-ramdisk": "120777 bb", "bbin/ls": "120777 bb", "bin/sh": "120777 ../bbin/gosh",
				"sbin/modprobe": "100755 #!/bbin/bcd-ramdisk modprobe\n", "dev/console": "20600 ", "bcd": "40700 ", "tmp": "41777 ",
				lib + "modules.dep":      "100644 kernel/drivers/virtio_net.ko: kernel/drivers/virtio_ring.ko\nkernel/drivers/virtio_ring.ko:\n",
				lib + "modules.alias":    "100644 alias virtio:d00000001v* virtio_net\n",
				lib + "modules.builtin":  "100644 kernel/fs/ext4/ext4.ko\n",
				"lib/firmware/net/a.bin": "100644 blob",
				lib + "kernel/drivers":   "40755 ",
				"bbin/bb":                "100755 " + object(""),
			} {
				if got, ok := files[name]; got != want {
					t.Errorf("%s: %q (present %v), want %q", name, got, ok, want)
				}
			}
			for name := range files {
				if strings.Contains(name, "other.ko") || strings.Contains(name, "huge") || strings.Contains(name, "..") {
					t.Errorf("%s was not asked for", name)
				}
			}
			wantFirmware := []FirmwareInfo{{Driver: "virtio_net", File: "net/a.bin", Package: "firmware-net", Bytes: 4}, {Driver: "virtio_net", File: "net/b.bin"}}
			if d := cmp.Diff(wantFirmware, m.Firmware); d != "" {
				t.Errorf("firmware\n%s", d)
			}
			if d := cmp.Diff([]string{"ntfs3"}, m.Absent); d != "" {
				t.Errorf("absent\n%s", d)
			}
			if m.Kernel.Version != "6.1.9-1" || m.Kernel.Release != "6.1.0-9-amd64" || m.Flavour != "custom" || len(steps) == 0 {
				t.Errorf("manifest %+v, steps %q", m.Kernel, steps)
			}
			wantParts := []string{"https://snapshot.debian.org/package/linux-signed-amd64/6.1.9+1/", "https://snapshot.debian.org/package/firmware-net/1-1/", "https://pkg.go.dev/example.org/m@v1.0.0"}
			var parts []string
			for _, p := range m.Parts {
				parts = append(parts, p.Source)
			}
			if d := cmp.Diff(wantParts, parts); d != "" {
				t.Errorf("parts\n%s", d)
			}
			if got, err := Verify(os.DirFS(out)); err != nil || cmp.Diff(m, got) != "" {
				t.Errorf("reading it back: %v\n%s", err, cmp.Diff(m, got))
			}
			if left, err := os.ReadDir(out); err != nil || len(left) != 3 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// TestBuildRepeats: the same inputs give the same bytes, from the cache or not, by the program or by the Go encoder, and
// an agent taken out of an earlier build is the agent that went in.
func TestBuildRepeats(t *testing.T) {
	deb := kernelDeb(t, "", "")
	for _, tool := range []bool{true, false} {
		if !tool {
			t.Setenv("PATH", t.TempDir())
		}
		cache := t.TempDir()
		var first *Manifest
		agent := testAgent()
		for i, c := range []string{"", cache, cache} {
			out := filepath.Join(t.TempDir(), "out")
			m, err := Build(t.Context(), Config{KernelDeb: deb, Modules: []string{"virtio_net"}, Agent: agent, Out: out, CacheDir: c})
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = m
			}
			if d := cmp.Diff(first, m); d != "" {
				t.Errorf("build %d differs\n%s", i, d)
			}
			if agent, err = AgentFrom(os.DirFS(out)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(testAgent(), agent); d != "" {
				t.Errorf("agent taken out\n%s", d)
			}
		}
		if strings.Contains(first.Compressor, "Go encoder") == tool && tool {
			t.Log("the zstd program is not installed; the Go encoder was tested twice")
		}
	}
}

// TestBuildRefuses: what a person can get wrong has a code and a way out, and leaves nothing behind.
func TestBuildRefuses(t *testing.T) {
	good := kernelDeb(t, "", "")
	half, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.deb")
	if err := os.WriteFile(cut, half[:len(half)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"kernel-package-incomplete": {KernelDeb: writeDeb(t, "meta.deb", kernelControl, entryOf{name: "./usr/share/doc/x", body: "x"}), Agent: testAgent()},
		"not-a-kernel-package":      {KernelDeb: writeDeb(t, "vim.deb", "Package: vim\nArchitecture: amd64\n", entryOf{name: "./x", body: "x"}), Agent: testAgent()},
		"package-damaged":           {KernelDeb: cut, Agent: testAgent()},
		"package-unreadable":        {KernelDeb: "absent.deb", Agent: testAgent()},
		"invalid-field":             {Flavour: "toaster", Level: 40},
	} {
		t.Run(name, func(t *testing.T) {
			c.Out = filepath.Join(t.TempDir(), "out")
			_, err := Build(t.Context(), c)
			e, ok := app.AsError(err)
			if !ok || e.Reason != name || e.WayOut == "" {
				t.Errorf("%v", err)
			}
			if left, _ := os.ReadDir(c.Out); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Build(ctx, Config{KernelDeb: good, Modules: []string{"virtio_net"}, Agent: testAgent(), Out: t.TempDir()}); err == nil {
		t.Error("built although it was cancelled")
	}
}

// TestVerifyFindsDamage: one changed byte, one missing file, another format.
func TestVerifyFindsDamage(t *testing.T) {
	out := t.TempDir()
	if _, err := Build(t.Context(), Config{KernelDeb: kernelDeb(t, "", ""), Modules: []string{"virtio_net"}, Agent: testAgent(), Out: out}); err != nil {
		t.Fatal(err)
	}
	kernel := filepath.Join(out, KernelFile)
	if err := os.WriteFile(kernel, []byte("kernul"), 0o644); err != nil {
		t.Fatal(err)
	}
	if e, ok := app.AsError(second(Verify(os.DirFS(out)))); !ok || e.Reason != "ramdisk-damaged" {
		t.Errorf("changed byte: %v", e)
	}
	if err := os.Remove(kernel); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(os.DirFS(out)); err == nil {
		t.Error("missing file not found")
	}
	if err := os.WriteFile(filepath.Join(out, ManifestFile), []byte(`{"format":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if e, ok := app.AsError(second(ReadManifest(os.DirFS(out)))); !ok || e.Reason != "ramdisk-format" {
		t.Errorf("other format: %v", e)
	}
}

func second[T any](_ T, err error) error { return err }

// TestAgentCheck: a program the kernel could not start is refused before a machine finds out.
func TestAgentCheck(t *testing.T) {
	arm := []byte(object(""))
	binary.LittleEndian.PutUint16(arm[18:], uint16(elf.EM_AARCH64))
	for name, a := range map[string]Agent{
		"text":       {Binary: []byte("#!/bin/sh\n"), Commands: []string{agentCommand}},
		"arm64":      {Binary: arm, Commands: []string{agentCommand}},
		"no command": {Binary: []byte(object("")), Commands: []string{"ls"}},
	} {
		if e, ok := app.AsError(a.check()); !ok || e.Reason != "agent-unusable" {
			t.Errorf("%s: %v", name, e)
		}
	}
	if e, ok := app.AsError(second(LoadAgent(filepath.Join(t.TempDir(), "bb")))); !ok || e.Reason != "agent-unreadable" {
		t.Errorf("%v", e)
	}
}

// TestModuleLists: each flavour has what the ramdisk needs to be reached, and the lab has nothing the server lacks.
func TestModuleLists(t *testing.T) {
	server, err := ModuleList(Server)
	if err != nil {
		t.Fatal(err)
	}
	lab, err := ModuleList(Lab)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"button", "evdev", "ipmi_devintf", "ahci", "nvme", "sd_mod", "mlx5_core", "megaraid_sas", "bnxt_en", "ice", "virtio_net", "efivarfs"} {
		if !slices.Contains(server, n) {
			t.Errorf("server: no %s", n)
		}
	}
	for _, n := range lab {
		if !slices.Contains(server, n) {
			t.Errorf("%s is in the lab only", n)
		}
	}
	for _, list := range [][]string{server, lab} {
		if s := slices.Sorted(slices.Values(list)); len(slices.Compact(s)) != len(list) {
			t.Error("a module is listed twice")
		}
	}
	if _, err := ModuleList("toaster"); err == nil {
		t.Error("no error for an unknown flavour")
	}
}

func FuzzReadCPIO(f *testing.F) {
	a := newArchive()
	a.file("bcd/boot.json", []byte("{}"), 0o600)
	var b bytes.Buffer
	if _, err := a.write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:120])
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := readCPIO(b, func(e entry) {
			if len(e.Name) > maxCPIOName || len(e.Body) > len(b) {
				t.Errorf("record %q of %d bytes out of %d", e.Name, len(e.Body), len(b))
			}
		})
		if err == nil && (n <= 0 || n > len(b)) {
			t.Errorf("took %d of %d bytes", n, len(b))
		}
	})
}
