package boot

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// triesRE is the boot counter at the end of an entry's name: "+3", or "+2-1" after one try (systemd's "Automatic Boot
// Assessment").
var triesRE = regexp.MustCompile(`^(.*)\+([0-9]{1,4})(?:-([0-9]{1,4}))?$`)

// tries takes the boot counter off an entry's name. left is -1 when there is none.
func tries(name string) (id string, left, tried int) {
	m := triesRE.FindStringSubmatch(name)
	if m == nil {
		return name, -1, 0
	}
	left, _ = strconv.Atoi(m[2]) // up to four digits
	tried, _ = strconv.Atoi("0" + m[3])
	return m[1], left, tried
}

// bySpec orders entries as the Boot Loader Specification says ("Sorting"): entries that failed all their tries are last,
// those with a sort key come before those without; then sort key, machine id, the newer version; then the later file name.
func bySpec(a, b *blsFile) bool {
	if x, y := a.left == 0, b.left == 0; x != y {
		return y
	}
	x, y := a.first("sort-key"), b.first("sort-key")
	if (x == "") != (y == "") {
		return x != ""
	}
	if x != "" {
		for _, c := range []int{strings.Compare(x, y), strings.Compare(a.first("machine-id"), b.first("machine-id")), compareUAPI(b.first("version"), a.first("version"))} {
			if c != 0 {
				return c < 0
			}
		}
	}
	if c := compareUAPI(b.id, a.id); c != 0 {
		return c < 0
	}
	if a.left != b.left {
		return a.left > b.left
	}
	return a.tried < b.tried
}

// systemdBoot finds the default of a systemd-boot installation: loader.conf's default, a pattern, else the first entry in
// order. An entry whose kernel is not there is passed over, as systemd-boot does. Entries lie on the EFI system partition and on the extended boot partition, each with its own kernels. What the
// firmware's variables say is not on the disk.
func systemdBoot(parts []*partition) (entry, bool) {
	type found struct {
		blsFile
		p *partition
	}
	var all []found
	var pattern string
	for _, p := range parts {
		for _, f := range readBLS(p, p.fold("/loader/entries"), bySpec) {
			all = append(all, found{f, p})
		}
		conf, _ := p.read(p.fold("/loader/loader.conf"), 64<<10) // optional
		for line := range strings.Lines(string(conf)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "default" {
				pattern = f[1]
			}
		}
	}
	if len(all) == 0 {
		return entry{}, false
	}
	if here := slices.DeleteFunc(slices.Clone(all), func(f found) bool { return !exists(f.p, f.first("linux")) }); len(here) > 0 {
		all = here
	}
	slices.SortStableFunc(all, func(a, b found) int {
		switch {
		case bySpec(&a.blsFile, &b.blsFile):
			return -1
		case bySpec(&b.blsFile, &a.blsFile):
			return 1
		}
		return 0
	})
	best := &all[0]
	for i := range all {
		if all[i].is(pattern) {
			best = &all[i]
			break
		}
	}
	e := best.entry(best.p, "", plain)
	e.args = quoteArgs(words(e.args))
	return *e, true
}

// is reports whether a pattern of loader.conf names the entry. Case is no matter: the names are on a FAT.
func (f *blsFile) is(pattern string) bool {
	for _, name := range []string{f.id, f.id + ".conf"} {
		if ok, _ := path.Match(strings.ToLower(pattern), strings.ToLower(name)); ok {
			return true
		}
	}
	return false
}

func plain(s string) string { return s }
