package kmod

import (
	"fmt"
	"strings"
)

// Dep writes modules.dep(5): for each module what must be loaded before it, last loaded first, as depmod writes it.
func (x *Index) Dep(mods []*Module) (string, error) {
	var b strings.Builder
	for _, m := range mods {
		needs, err := x.Needs(m)
		if err != nil {
			return "", err
		}
		b.WriteString(m.Path + ":")
		for i := len(needs) - 1; i >= 0; i-- {
			b.WriteString(" " + needs[i].Path)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// Alias writes modules.alias: "alias PATTERN MODULE" lines in the order of mods.
func Alias(mods []*Module) string {
	var b strings.Builder
	for _, m := range mods {
		for _, a := range m.Aliases {
			fmt.Fprintf(&b, "alias %s %s\n", a, m.Name)
		}
	}
	return b.String()
}
