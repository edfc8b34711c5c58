package ramdisk

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/better-compute/bcd/app"
)

const (
	busyboxPath  = "bbin/bb"     // in the initramfs
	agentCommand = "bcd-ramdisk" // the busybox command that is /init

	maxInitramfs = 1 << 30 // unpacked
)

// Agent is the busybox: the one program of the ramdisk, static, for linux/amd64.
type Agent struct {
	Binary   []byte
	Go       string   // toolchain that built it
	Commands []string // names it answers to, agentCommand among them
	Parts    []Part   // third-party works linked in
}

// LoadAgent reads a busybox as package images/ramdisk/busybox builds it, with its description beside it (path + ".json").
func LoadAgent(path string) (*Agent, error) {
	bin, err := os.ReadFile(path)
	if err != nil {
		return nil, app.Errorf(app.InvalidInput, "agent-unreadable", "the ramdisk's program %s cannot be read: %w", path, err).Do("build it: make ramdisk")
	}
	doc, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, app.Errorf(app.InvalidInput, "agent-undescribed", "the ramdisk's program %s has no description beside it: %w", path, err).Do("build it: make ramdisk")
	}
	var d struct {
		Commands []string                         `json:"commands"`
		Go       string                           `json:"go"`
		Modules  []struct{ Path, Version string } `json:"modules"`
	}
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, fmt.Errorf("decoding %q: %w", path+".json", err)
	}
	a := &Agent{Binary: bin, Go: d.Go, Commands: d.Commands, Parts: []Part{
		{In: InBusybox, Name: "Go standard library", Version: d.Go, License: "BSD-3-Clause", Source: "https://go.dev/dl/"},
	}}
	for _, m := range d.Modules {
		a.Parts = append(a.Parts, Part{In: InBusybox, Name: m.Path, Version: m.Version, Source: "https://pkg.go.dev/" + m.Path + "@" + m.Version})
	}
	return a, a.check()
}

// AgentFrom takes the busybox out of an earlier output directory, as the one built into bcd: a jump host has no Go.
func AgentFrom(dir fs.FS) (*Agent, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	f, err := dir.Open(InitramfsFile)
	if err != nil {
		return nil, fmt.Errorf("opening the initramfs: %w", err)
	}
	defer f.Close()
	var bin []byte
	if err := readInitramfs(f, func(e entry) {
		if e.Name == busyboxPath {
			bin = bytes.Clone(e.Body)
		}
	}); err != nil {
		return nil, err
	}
	a := &Agent{Binary: bin, Go: m.Agent.Go, Commands: m.Agent.Commands}
	for _, p := range m.Parts {
		if p.In == InBusybox {
			a.Parts = append(a.Parts, p)
		}
	}
	return a, a.check()
}

// check refuses what the kernel could not start, before a machine finds out.
func (a *Agent) check() error {
	bad := func(format string, args ...any) error {
		return app.Errorf(app.InvalidInput, "agent-unusable", "the ramdisk's program "+format, args...).Do("build it: make ramdisk")
	}
	f, err := elf.NewFile(bytes.NewReader(a.Binary))
	if err != nil {
		return bad("is not an executable: %w", err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return bad("is for %v, not for x86-64", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return bad("is not static")
		}
	}
	if !slices.Contains(a.Commands, agentCommand) {
		return bad("holds no %s command", agentCommand)
	}
	return nil
}

// place lays out the root directory around the busybox.
func (a *Agent) place(ar *archive) {
	for _, d := range []string{"dev", "proc", "sys", "run", "mnt", "root", "etc", "lib", "bin", "sbin"} {
		ar.dir(d, 0o755)
	}
	ar.dir("tmp", 0o1777)
	ar.dir("bcd", 0o700)
	// The kernel opens the console for init before anything is mounted; Debian's kernel does not mount devtmpfs itself.
	ar.device("dev/console", 0o600, 5, 1)
	ar.device("dev/null", 0o666, 1, 3)
	ar.device("dev/kmsg", 0o644, 1, 11)

	ar.file(busyboxPath, a.Binary, 0o755)
	for _, c := range a.Commands {
		ar.link("bbin/"+c, "bb")
	}
	ar.link("init", "bbin/"+agentCommand)
	if slices.Contains(a.Commands, "gosh") {
		ar.link("bin/sh", "../bbin/gosh")
	}
	// request_module() in the kernel runs this to get a file system, a cipher or a RAID level that was named and not
	// loaded. A link would not do: the busybox forgets the name of a link to a link.
	ar.file("sbin/modprobe", []byte("#!/bbin/"+agentCommand+" modprobe\n"), 0o755)
	ar.file("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644)
	ar.file("etc/group", []byte("root:x:0:\n"), 0o644)
}
