package figures

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
)

// machineFacts says on what, and beside what, the figures were taken.
func machineFacts() []string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(load), " ")
	out := []string{
		fmt.Sprintf("%d x %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name")),
		"memory " + field("/proc/meminfo", "MemTotal"),
		"Linux " + strings.TrimSpace(string(release)),
		"load before the start " + busy,
	}
	for _, v := range [][]string{{"qemu-system-x86_64", "--version"}, {"zstd", "--version"}, {"dd", "--version"}} {
		out = append(out, firstLine(v[0], v[1:]...))
	}
	return out
}

// field reads the first line of a "name : value" file that has the name.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// firstLine is what a program says of its version.
func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return name + " is missing"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Trim(line, "* ")
}

// sizes are of the program as it is installed and of what a machine fetches.
func (s *session) sizes(context.Context) error {
	files, err := embed.FS(ramdisk.Server)
	if err != nil {
		return err
	}
	b, err := fs.ReadFile(files, ramdisk.ManifestFile)
	if err != nil {
		return fmt.Errorf("reading the manifest of the ramdisk: %w", err)
	}
	var m ramdisk.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("reading the manifest of the ramdisk: %w", err)
	}
	s.note("ramdisk_bytes: kernel and initramfs of the server flavour, %s %s with %d modules: what each machine fetches", m.Kernel.Package, m.Kernel.Version, len(m.Modules))
	s.put("ramdisk_bytes", float64(m.BootBytes()), 0)
	info, err := os.Stat(s.Binary)
	if err != nil {
		return fmt.Errorf("measuring the program: %w", err)
	}
	s.note("binary_bytes: this program, with both ramdisks inside")
	s.put("binary_bytes", float64(info.Size()), 0)
	return nil
}
