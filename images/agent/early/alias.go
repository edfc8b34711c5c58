package early

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// aliases is modules.alias: which module a device, or a name that the kernel asks for, wants.
type aliases struct {
	exact map[string][]string       // without wildcard → modules
	globs map[string][]aliasPattern // by what stands before the first colon: the bus
}

type aliasPattern struct {
	literal string // before the first wildcard: told apart cheaply
	pattern string
	module  string
}

// readAliases parses "alias PATTERN MODULE" lines; other lines are skipped.
func readAliases(r io.Reader) (*aliases, error) {
	a := &aliases{exact: map[string][]string{}, globs: map[string][]aliasPattern{}}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<10)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) != 3 || f[0] != "alias" {
			continue
		}
		p, module := noSlash(f[1]), f[2]
		i := strings.IndexAny(p, "*?[\\")
		if i < 0 {
			k := kernelName(p)
			a.exact[k] = append(a.exact[k], module)
			continue
		}
		if _, err := path.Match(p, ""); err != nil {
			continue
		}
		bus, _, _ := strings.Cut(p[:i], ":")
		a.globs[bus] = append(a.globs[bus], aliasPattern{literal: p[:i], pattern: p, module: module})
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("reading module aliases: %w", err)
	}
	return a, nil
}

// lookup gives every module that wants alias, in the order of the file. Several may: the kernel binds the right one.
func (a *aliases) lookup(alias string) []string {
	alias = noSlash(alias)
	mods := slices.Clone(a.exact[kernelName(alias)])
	bus, _, _ := strings.Cut(alias, ":")
	for _, p := range a.globs[bus] {
		if !strings.HasPrefix(alias, p.literal) || slices.Contains(mods, p.module) {
			continue
		}
		if ok, err := path.Match(p.pattern, alias); ok && err == nil {
			mods = append(mods, p.module)
		}
	}
	return mods
}

// noSlash keeps path.Match from treating a slash as a separator, which it is not in an alias.
func noSlash(s string) string { return strings.ReplaceAll(s, "/", "\x01") }

// kernelName is a module's name as the kernel spells it.
func kernelName(s string) string { return strings.ReplaceAll(s, "-", "_") }
