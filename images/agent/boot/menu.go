package boot

import (
	"errors"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
)

// chosen gives what the menu starts by default: "2", an id, a title, or those joined by ">" through submenus.
func (g *grub) chosen() (entry, error) {
	want := g.vars["default"]
	if next := g.vars["next_entry"]; next != "" && want == "" {
		want = next
	}
	for range maxDepth {
		if len(g.menu) == 0 {
			return entry{}, g.surely(noEntry("its menu is empty"))
		}
		head, tail, _ := strings.Cut(strings.ReplaceAll(want, ">>", "\x00"), ">")
		it := pick(g.menu, strings.ReplaceAll(head, "\x00", ">"))
		want = tail
		if it.bls != nil {
			return *it.bls, nil
		}
		if it.at != nil {
			g.vars["root"] = device(it.at)
		}
		g.menu, g.found = nil, entry{}
		if _, err := g.run(it.body); err != nil && !errors.Is(err, errReturn) {
			return entry{}, noEntry(err.Error())
		}
		if it.sub {
			continue
		}
		g.found.title = it.title
		if g.found.kernel == "" {
			return g.found, noEntry("its default entry " + strconv.Quote(clip(it.title, 80)) + " starts no Linux kernel")
		}
		return g.found, nil
	}
	return entry{}, noEntry("its menus are nested too deeply")
}

// sure is why a configuration starts nothing, by one that was understood to its end.
type sure struct{ error }

func (s sure) Unwrap() error { return s.error }

func (g *grub) surely(err error) error {
	if g.blind {
		return err
	}
	return sure{err}
}

// pick finds an item by id, title or number; the first when there is none, as GRUB does.
func pick(menu []item, want string) item {
	for _, it := range menu {
		if want != "" && (it.id == want || it.title == want) {
			return it
		}
	}
	if n, err := strconv.Atoi(want); err == nil && n >= 0 && n < len(menu) {
		return menu[n]
	}
	return menu[0]
}

// wayOut is what every refusal of this package says that a boot through the firmware gets round.
const wayOut = "the machine boots its disk through the firmware instead; deploy with --boot reboot to begin with that"

func noEntry(why string) error {
	return app.Errorf(app.Unsupported, "no-boot-entry", "no default boot entry of the disk can be started: %s", why).Do(wayOut)
}

func clip(s string, n int) string { return s[:min(len(s), n)] }
