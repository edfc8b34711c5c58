package boot

import (
	"path"
	"strings"
)

// syslinuxFiles are where SYSLINUX and EXTLINUX keep their configuration, the first that is there counts (SYSLINUX wiki,
// "Config").
var syslinuxFiles = []string{"/boot/syslinux/syslinux.cfg", "/syslinux/syslinux.cfg", "/syslinux.cfg", "/boot/extlinux/extlinux.conf", "/boot/extlinux.conf", "/extlinux/extlinux.conf", "/extlinux.conf"}

// stanza is an entry of a SYSLINUX configuration.
type stanza struct {
	name, kernel, args string
	initrds            []string
	blind              bool // what is included may say otherwise
}

// syslinux finds the default of a SYSLINUX configuration. found: there is one.
func syslinux(parts []*partition) (e entry, found bool, err error) {
	for _, name := range syslinuxFiles {
		for _, p := range parts {
			b, err := p.read(name, 64<<10)
			if err != nil {
				continue
			}
			l, why := chosenStanza(string(b))
			if why != nil {
				return entry{}, true, why
			}
			e = entry{title: l.name, part: p, args: l.args, blind: l.blind}
			for i, file := range append([]string{l.kernel}, l.initrds...) {
				if !path.IsAbs(file) {
					file = path.Join(path.Dir(name), file)
				}
				if i == 0 {
					e.kernel = file
				} else {
					e.initrds = append(e.initrds, file)
				}
			}
			return e, true, nil
		}
	}
	return entry{}, false, nil
}

// chosenStanza reads a configuration: the label that DEFAULT or MENU DEFAULT names, or the first.
func chosenStanza(cfg string) (stanza, error) {
	var labels []stanza
	want, blind := "", false
	for line := range strings.Lines(cfg) {
		key, value, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " ")
		var l *stanza
		if n := len(labels); n > 0 {
			l = &labels[n-1]
		}
		switch key = strings.ToUpper(key); {
		case key == "DEFAULT" && want == "":
			want = value
		case key == "MENU" && l != nil && strings.EqualFold(value, "default"):
			want = l.name
		case key == "INCLUDE", key == "CONFIG", key == "MENU" && strings.HasPrefix(strings.ToLower(value), "include"):
			blind = true
		case key == "LABEL":
			if len(labels) < 256 {
				labels = append(labels, stanza{name: value})
			}
		case l == nil:
		case key == "KERNEL" || key == "LINUX":
			l.kernel = value
		case key == "APPEND":
			l.append(value)
		case key == "INITRD":
			l.initrds = strings.Split(value, ",")
		}
	}
	for i := range labels {
		if labels[i].name == want || want == "" || !named(labels, want) {
			if k := labels[i].kernel; k == "" || strings.HasSuffix(k, ".c32") {
				return stanza{}, noEntry("its default entry " + clip(labels[i].name, 80) + " starts no Linux kernel")
			}
			labels[i].blind = blind
			return labels[i], nil
		}
	}
	err := noEntry("its configuration of SYSLINUX has no entry")
	if blind {
		return stanza{}, err
	}
	return stanza{}, sure{err}
}

func named(labels []stanza, name string) bool {
	for i := range labels {
		if labels[i].name == name {
			return true
		}
	}
	return false
}

// append takes the kernel's arguments, among which SYSLINUX looks for an initrd.
func (l *stanza) append(args string) {
	var out []string
	for _, a := range strings.Fields(args) {
		if files, ok := strings.CutPrefix(a, "initrd="); ok {
			l.initrds = strings.Split(files, ",")
			continue
		}
		out = append(out, a)
	}
	l.args = strings.Join(out, " ")
}
