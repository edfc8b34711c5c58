package boot

import (
	"path"
	"sort"
	"strings"
)

// blsFile is a Boot Loader Specification entry of type 1.
type blsFile struct {
	id      string // file name without ".conf"
	version string
	sortKey string
	values  map[string][]string
}

// maxBLS bounds the entries of one folder.
const maxBLS = 256

// readBLS reads the entries in a folder, the one to prefer first.
func readBLS(p *partition, dir string) []blsFile {
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
		f.version, f.sortKey = f.first("version"), f.first("sort-key")
		if f.first("linux") != "" {
			out = append(out, f)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].before(&out[j]) })
	return out
}

func (f *blsFile) first(key string) string {
	if v := f.values[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// before orders entries: by sort key when both have one, then the newer version, then the later file name.
func (f *blsFile) before(o *blsFile) bool {
	if f.sortKey != "" && o.sortKey != "" {
		if f.sortKey != o.sortKey {
			return f.sortKey < o.sortKey
		}
		if c := compareVersions(f.version, o.version); c != 0 {
			return c > 0
		}
	}
	return compareVersions(f.id, o.id) > 0
}

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
	e.args = strings.Join(strings.Fields(strings.Join(args, " ")), " ")
	return e
}

func exists(p *partition, name string) bool {
	_, _, err := p.stat(name)
	return err == nil
}

// blscfg adds the entries of the partition GRUB looks at: /loader/entries of a boot partition, or /boot/loader/entries.
func (g *grub) blscfg(args []string) {
	dirs := []string{"/loader/entries", "/boot/loader/entries"}
	if len(args) > 0 {
		dirs = args[:1]
	}
	for _, dir := range dirs {
		p, dir := g.place(dir)
		base := ""
		if strings.HasPrefix(dir, "/boot/") {
			base = "/boot"
		}
		files := readBLS(p, dir)
		for i := range files {
			f := &files[i]
			if len(g.menu) < 1024 {
				g.menu = append(g.menu, item{title: f.first("title"), id: f.id, bls: f.entry(p, base, g.expandText)})
			}
		}
		if len(files) > 0 {
			return
		}
	}
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

// systemdBoot finds the default of a systemd-boot installation on p: loader.conf's default, a pattern, else the newest.
func systemdBoot(p *partition) (entry, bool) {
	dir := p.fold("/loader/entries")
	files := readBLS(p, dir)
	if len(files) == 0 {
		return entry{}, false
	}
	conf, _ := p.read(p.fold("/loader/loader.conf"), 64<<10) // optional
	best := &files[0]
	for line := range strings.Lines(string(conf)) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] != "default" {
			continue
		}
		for i := range files {
			for _, name := range []string{files[i].id, files[i].id + ".conf"} {
				if ok, _ := path.Match(f[1], name); ok {
					best = &files[i]
					return *best.entry(p, "", plain), true
				}
			}
		}
	}
	return *best.entry(p, "", plain), true
}

func plain(s string) string { return s }

// compareVersions orders like rpm: runs of digits as numbers, runs of letters as text, a tilde before everything.
func compareVersions(a, b string) int {
	for a != "" || b != "" {
		a, b = strings.TrimLeft(a, "-_.+^"), strings.TrimLeft(b, "-_.+^")
		if strings.HasPrefix(a, "~") != strings.HasPrefix(b, "~") {
			if a != "" && a[0] == '~' {
				return -1
			}
			return 1
		}
		a, b = strings.TrimPrefix(a, "~"), strings.TrimPrefix(b, "~")
		if a == "" || b == "" {
			return len(a) - len(b)
		}
		x, y := run(a), run(b)
		a, b = a[len(x):], b[len(y):]
		dx, dy := digit(x[0]), digit(y[0])
		switch {
		case dx && !dy:
			return 1
		case dy && !dx:
			return -1
		case dx:
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// run is the leading run of digits or of anything else up to a digit or separator; at least one byte.
func run(s string) string {
	i := 1
	for i < len(s) && digit(s[i]) == digit(s[0]) && !strings.ContainsRune("-_.+^~", rune(s[i])) {
		i++
	}
	return s[:i]
}
