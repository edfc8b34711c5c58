package ramdisk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/better-compute/bcd/app"
)

// Names of the files in an output directory.
const (
	KernelFile    = "vmlinuz"
	InitramfsFile = "initramfs.zst"
	ManifestFile  = "manifest.json"
	StubFile      = "linuxx64.efi.stub" // absent when Build was given no Stub
)

// ManifestFormat is the version of Manifest's shape.
const ManifestFormat = 1

// Manifest says what is in an output directory. It holds no times: equal inputs give equal bytes.
type Manifest struct {
	Format   int            `json:"format"`
	Flavour  string         `json:"flavour"` // Server, Lab, or "custom"
	Kernel   KernelInfo     `json:"kernel"`
	Agent    AgentInfo      `json:"agent"`
	Modules  []ModuleInfo   `json:"modules"`          // sorted by path
	Absent   []string       `json:"absent,omitempty"` // asked for, but not in this kernel
	Firmware []FirmwareInfo `json:"firmware"`         // every file a carried driver may ask for
	Files    []FileInfo     `json:"files"`            // sorted by name
	Parts    []Part         `json:"parts"`            // third-party works, for the notices

	Compressor string `json:"compressor"` // what wrote the initramfs
}

// KernelInfo is the Debian package the kernel came from.
type KernelInfo struct {
	Package string `json:"package"` // "linux-image-6.1.0-57-amd64"
	Version string `json:"version"` // "6.1.192-3"
	Release string `json:"release"` // as uname -r: "6.1.0-57-amd64"
	SHA256  string `json:"sha256"`  // hex, of the .deb
}

// AgentInfo is the busybox.
type AgentInfo struct {
	Bytes    int64    `json:"bytes"`
	SHA256   string   `json:"sha256"`
	Go       string   `json:"go,omitempty"` // toolchain
	Commands []string `json:"commands"`     // names it answers to, sorted
}

// ModuleInfo is a kernel module in the initramfs.
type ModuleInfo struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// FirmwareInfo is a file a driver may ask for. Package is empty when no firmware package given to Build had it.
type FirmwareInfo struct {
	Driver  string `json:"driver"`
	File    string `json:"file"`
	Package string `json:"package,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
}

// FileInfo is a file of the output directory.
type FileInfo struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hex
}

// Where a Part is carried.
const (
	InKernel   = "kernel"   // vmlinuz and the modules
	InFirmware = "firmware" // files for devices
	InBusybox  = "busybox"  // linked into the agent's program
	InLoader   = "loader"   // boot programs beside the kernel
)

// Part is a third-party work carried in the output.
type Part struct {
	In      string `json:"in"`
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license,omitempty"` // SPDX, when it is known
	Source  string `json:"source"`            // URL of the source
}

// File finds a file of the output directory.
func (m *Manifest) File(name string) (FileInfo, bool) {
	for _, f := range m.Files {
		if f.Name == name {
			return f, true
		}
	}
	return FileInfo{}, false
}

// BootBytes is what a machine fetches to boot: kernel and initramfs.
func (m *Manifest) BootBytes() int64 {
	k, _ := m.File(KernelFile)
	i, _ := m.File(InitramfsFile)
	return k.Bytes + i.Bytes
}

// ReadManifest reads the manifest of an output directory.
func ReadManifest(dir fs.FS) (*Manifest, error) {
	b, err := fs.ReadFile(dir, ManifestFile)
	if err != nil {
		return nil, fmt.Errorf("reading the ramdisk's manifest: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("decoding the ramdisk's manifest: %w", err)
	}
	if m.Format != ManifestFormat {
		return nil, app.Errorf(app.Unsupported, "ramdisk-format", "the ramdisk was built in format %d, this bcd reads %d", m.Format, ManifestFormat).
			Do("build it again with this bcd: bcd ramdisk build")
	}
	return &m, nil
}

// Verify compares every file of an output directory with its manifest.
func Verify(dir fs.FS) (*Manifest, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	for _, want := range m.Files {
		f, err := dir.Open(want.Name)
		if err != nil {
			return nil, fmt.Errorf("opening a file of the ramdisk: %w", err)
		}
		got, err := describe(want.Name, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, app.Errorf(app.InvalidConfig, "ramdisk-damaged", "%s has %d bytes and SHA-256 %s, its manifest says %d and %s", want.Name, got.Bytes, got.SHA256, want.Bytes, want.SHA256).
				Do("build the ramdisk again: bcd ramdisk build")
		}
	}
	return m, nil
}

// describe reads a file to its end.
func describe(name string, r io.Reader) (FileInfo, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		return FileInfo{}, fmt.Errorf("reading %q: %w", name, err)
	}
	return FileInfo{Name: name, Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

func describePath(name, path string) (FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return FileInfo{}, fmt.Errorf("opening %q: %w", path, err)
	}
	defer f.Close()
	return describe(name, f)
}
