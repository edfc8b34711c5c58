package boot

import (
	"path"
	"sort"
	"strings"
)

// blsFile is a Boot Loader Specification entry of type 1.
type blsFile struct {
	id     string // file name without ".conf" and boot counters
	left   int    // tries that are left; -1: they are not counted
	tried  int
	values map[string][]string
}

// maxBLS bounds the entries of one folder.
const maxBLS = 256

// readBLS reads the entries in a folder that this machine can start, the one to prefer first.
func readBLS(p *partition, dir string, before func(a, b *blsFile) bool) []blsFile {
	var out []blsFile
	for _, name := range p.list(dir) {
		id, ok := strings.CutSuffix(name, ".conf")
		if !ok || len(out) == maxBLS {
			continue
		}
		b, err := p.read(path.Join(dir, name), 64<<10)
		if err != nil {
			continue
		}
		f := blsFile{id: id, values: map[string][]string{}}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
			if key != "" && !strings.HasPrefix(key, "#") {
				f.values[key] = append(f.values[key], strings.TrimSpace(value))
			}
		}
		f.id, f.left, f.tried = tries(f.id)
		if a := f.first("architecture"); f.first("linux") != "" && (a == "" || strings.EqualFold(a, "x64")) {
			out = append(out, f)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return before(&out[i], &out[j]) })
	return out
}

func (f *blsFile) first(key string) string {
	if v := f.values[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// byName orders entries as GRUB's blscfg does: the later file name, compared as packages are, first.
func byName(a, b *blsFile) bool { return compareVersions(a.id, b.id) > 0 }

// entry makes the file bootable. expand puts in the loader's variables.
func (f *blsFile) entry(p *partition, base string, expand func(string) string) *entry {
	at := func(name string) string {
		if base != "" && !exists(p, name) { // paths are relative to the boot partition; here /boot is a folder of the root
			return path.Join(base, name)
		}
		return name
	}
	e := &entry{title: f.first("title"), part: p, kernel: at(expand(f.first("linux")))}
	for _, line := range f.values["initrd"] {
		for _, name := range strings.Fields(expand(line)) {
			e.initrds = append(e.initrds, at(name))
		}
	}
	var args []string
	for _, line := range f.values["options"] {
		args = append(args, expand(line))
	}
	e.args = strings.Join(args, " ")
	return e
}

func exists(p *partition, name string) bool {
	_, _, err := p.stat(name)
	return err == nil
}

// blscfg adds the entries of the partition GRUB looks at: the folder in the variable blsdir, /loader/entries of a boot
// partition, or /boot/loader/entries. Entries without options get those in default_kernelopts, and the files that
// early_initrd names, beside their kernel, come before their own (grub2 of Fedora, blscfg.c).
func (g *grub) blscfg(args []string) {
	dirs := []string{"/loader/entries", "/boot/loader/entries"}
	if dir := g.vars["blsdir"]; dir != "" {
		dirs = append([]string{dir}, dirs...)
	}
	if len(args) > 0 && strings.ContainsAny(args[0], "(/") { // else "default" or "non-default", which say how to draw them
		dirs = args[:1]
	}
	for _, dir := range dirs {
		p, dir := g.placeBLS(dir)
		files := readBLS(p, dir, byName)
		for i := range files {
			if len(g.menu) < 1024 {
				g.menu = append(g.menu, item{title: files[i].first("title"), id: files[i].id, bls: g.blsEntry(p, dir, &files[i])})
			}
		}
		if len(files) > 0 {
			return
		}
	}
}

// placeBLS is place, below the partition in the variable boot when there is one.
func (g *grub) placeBLS(dir string) (*partition, string) {
	if p := g.partition(g.vars["boot"]); p != nil && !strings.HasPrefix(dir, "(") {
		return p, dir
	}
	return g.place(dir)
}

func (g *grub) blsEntry(p *partition, dir string, f *blsFile) *entry {
	e := f.entry(p, strings.TrimSuffix(path.Clean(dir), "/loader/entries"), g.expandText)
	if len(f.values["options"]) == 0 {
		e.args = g.expandText(g.vars["default_kernelopts"])
	}
	e.args = quoteArgs(words(e.args))
	var early []string
	for _, name := range strings.Fields(g.vars["early_initrd"]) {
		early = append(early, path.Join(path.Dir(e.kernel), name))
	}
	e.initrds = append(early, e.initrds...)
	return e
}

// words splits options at white space outside of quotes, which are dropped.
func words(s string) (out []string) {
	var b strings.Builder
	var quote rune
	open := false
	for _, c := range s {
		switch {
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, open = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if open {
				out = append(out, b.String())
			}
			b.Reset()
			open = false
		default:
			b.WriteRune(c)
			open = true
		}
	}
	if open {
		out = append(out, b.String())
	}
	return out
}

// expandText puts variables into a line that is no command.
func (g *grub) expandText(s string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() < maxValue && g.spent < maxSpent; {
		if s[i] != '$' {
			b.WriteByte(s[i])
			i++
			continue
		}
		p, n := lexVar(s[i:])
		if p.isVar {
			v := g.value(p.text)
			g.spent += len(v)
			b.WriteString(v)
		} else {
			b.WriteString(p.text)
		}
		i += n
	}
	return b.String()
}
