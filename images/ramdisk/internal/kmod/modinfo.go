// Package kmod does at build time what kmod and depmod do on a running system: it reads what each kernel module says
// about itself, finds what a set of modules needs, and writes the tables that the loader in the ramdisk looks things up in.
package kmod

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// maxModinfo bounds the .modinfo section, in bytes. amdgpu, the longest in Debian's kernel, has 40 KB.
const maxModinfo = 4 << 20

// Module is what one .ko says about itself.
type Module struct {
	Name     string   // in the kernel's form: dashes are underscores
	Path     string   // below /lib/modules/<release>, uncompressed name: "kernel/drivers/net/virtio_net.ko"
	Size     int64    // bytes, uncompressed
	Depends  []string // modules that must be loaded before, names in the kernel's form
	Softdeps []string // modules that should be loaded before when they exist
	Aliases  []string // modalias patterns and names that request_module() asks for
	Firmware []string // files below /lib/firmware that the driver may ask for
}

// Normal gives a module's name in the kernel's form.
func Normal(name string) string { return strings.ReplaceAll(name, "-", "_") }

// NameOf gives the module name of a .ko path.
func NameOf(p string) string { return Normal(strings.TrimSuffix(path.Base(p), ".ko")) }

// ReadModule reads the .modinfo section of an ELF relocatable file.
func ReadModule(p string, r io.ReaderAt, size int64) (Module, error) {
	m := Module{Name: NameOf(p), Path: p, Size: size}
	f, err := elf.NewFile(r)
	if err != nil {
		return m, fmt.Errorf("reading module %q: %w", p, err)
	}
	defer f.Close()
	s := f.Section(".modinfo")
	if s == nil {
		return m, fmt.Errorf("reading module %q: no .modinfo section", p)
	}
	if s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 || s.FileSize > maxModinfo {
		return m, fmt.Errorf("reading module %q: a .modinfo section of type %v and %d bytes", p, s.Type, s.FileSize)
	}
	b, err := s.Data()
	if err != nil {
		return m, fmt.Errorf("reading .modinfo of %q: %w", p, err)
	}
	m.parse(b)
	return m, nil
}

// parse takes key=value strings, each ended by a zero byte.
func (m *Module) parse(b []byte) {
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		k, v, ok := strings.Cut(string(kv), "=")
		if !ok || !printable(v) {
			continue
		}
		switch k {
		case "depends":
			for d := range strings.SplitSeq(v, ",") {
				if d != "" {
					m.Depends = append(m.Depends, Normal(d))
				}
			}
		case "alias":
			if v != "" && !strings.ContainsAny(v, " \t") {
				m.Aliases = append(m.Aliases, v)
			}
		case "firmware":
			if v != "" {
				m.Firmware = append(m.Firmware, v)
			}
		case "softdep":
			m.Softdeps = append(m.Softdeps, preDeps(v)...)
		}
	}
}

// preDeps takes the names between "pre:" and "post:".
func preDeps(v string) []string {
	var names []string
	pre := false
	for _, w := range strings.Fields(v) {
		switch w {
		case "pre:":
			pre = true
		case "post:":
			pre = false
		default:
			if pre {
				names = append(names, Normal(w))
			}
		}
	}
	return names
}

// printable keeps line breaks out of the tables, which are lines.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Index is every module of one kernel by name, and the names that are built in.
type Index struct {
	modules map[string]*Module
	builtin map[string]bool
}

// NewIndex makes an index. builtin is the content of modules.builtin.
func NewIndex(mods []Module, builtin string) (*Index, error) {
	x := &Index{modules: make(map[string]*Module, len(mods)), builtin: map[string]bool{}}
	for i := range mods {
		m := &mods[i]
		if have := x.modules[m.Name]; have != nil {
			return nil, fmt.Errorf("two modules are called %s: %s and %s", m.Name, have.Path, m.Path)
		}
		x.modules[m.Name] = m
	}
	for l := range strings.Lines(builtin) {
		if l = strings.TrimSpace(l); l != "" {
			x.builtin[NameOf(l)] = true
		}
	}
	return x, nil
}

// Closure gives the named modules and all that they need, sorted by path, and the names that this kernel lacks. A hard
// dependency that is missing, or a circle of them, is an error: such a package is broken.
func (x *Index) Closure(names []string) (mods []*Module, missing []string, err error) {
	w := walk{x: x, state: map[string]int{}}
	for _, n := range names {
		n = Normal(n)
		if x.modules[n] == nil {
			if !x.builtin[n] && !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
			continue
		}
		if err := w.add(n, true); err != nil {
			return nil, nil, err
		}
	}
	mods = w.order
	slices.SortFunc(mods, func(a, b *Module) int { return strings.Compare(a.Path, b.Path) })
	return mods, missing, nil
}

// Needs gives what must be loaded before m, in loading order.
func (x *Index) Needs(m *Module) ([]*Module, error) {
	w := walk{x: x, state: map[string]int{}}
	if err := w.add(m.Name, true); err != nil {
		return nil, err
	}
	return w.order[:len(w.order)-1], nil
}

const (
	entered = 1
	left    = 2
)

// walk is a depth-first visit that lists each module after its needs.
type walk struct {
	x     *Index
	state map[string]int
	order []*Module
}

func (w *walk) add(name string, hard bool) error {
	if w.state[name] == left {
		return nil
	}
	if w.state[name] == entered {
		if !hard { // softdeps may point at each other, as crc32c and its implementations do
			return nil
		}
		return fmt.Errorf("module %s depends on itself", name)
	}
	m := w.x.modules[name]
	if m == nil {
		if !hard || w.x.builtin[name] {
			return nil
		}
		return errors.New("no module " + name + ", which another one depends on")
	}
	w.state[name] = entered
	for _, d := range m.Depends {
		if err := w.add(d, true); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, d := range m.Softdeps {
		if err := w.add(d, false); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	w.state[name] = left
	w.order = append(w.order, m)
	return nil
}
