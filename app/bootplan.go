package app

import (
	"fmt"
	"slices"
	"strings"
)

// BootPolicyFor chooses a machine's policy: its own, else its hardware profile's, else the order as it was found when the
// BMC can have the network booted once (a deployed machine then boots its disk, and a dead appliance stops nobody), else the
// network first. once is false only when the BMC says that it cannot.
func BootPolicyFor(machine, profile BootPolicy, once bool) (BootPolicy, string) {
	switch {
	case machine != "":
		return machine, "set for the machine"
	case profile != "":
		return profile, "set by its hardware profile"
	case once:
		return BootAsFound, "its BMC boots the network once when asked"
	}
	return BootNetworkFirst, "its BMC cannot boot the network once"
}

// BootWriterFacts decide who writes a machine's boot order.
type BootWriterFacts struct {
	Firmware Firmware   // "" not known yet
	Recorded BootWriter // the writer so far, "" none
	Reason   string     // of it
	BMC      bool       // the BMC takes a boot order
	Failed   string     // reason for which the agent could write nothing, "" none
}

// BootWriterFor chooses the one writer of a machine's boot order. What was chosen stays, unless it can write nothing.
func BootWriterFor(f BootWriterFacts) (BootWriter, string) {
	bmc := func(why string) (BootWriter, string) {
		if f.BMC {
			return BootByBMC, why + ", and its BMC takes a boot order"
		}
		return BootByNone, why + ", and its BMC takes no boot order"
	}
	switch {
	case f.Firmware == FirmwareBIOS:
		return bmc("it boots by BIOS, which has no variables")
	case f.Failed == ReasonNVRAMReadOnly || f.Failed == ReasonNVRAMUnavailable:
		if w, why := bmc("its firmware lets no system change its variables"); f.BMC {
			return w, why
		}
		return BootByAgent, "its firmware lets no system change its variables, and its BMC takes no boot order"
	case f.Recorded == BootByBMC && f.BMC, f.Recorded == BootByAgent:
		return f.Recorded, f.Reason
	}
	return BootByAgent, "its firmware keeps the order in variables, which read back at once"
}

// Reasons of Errors about the variables of UEFI firmware.
const (
	ReasonNVRAMFull        = "nvram-full"
	ReasonNVRAMReadOnly    = "nvram-read-only"
	ReasonNVRAMUnavailable = "nvram-unavailable"
)

// PlanBootOrder gives the order, by id, that a machine shall have. own is the order that is ours, nil when there is none yet.
// Only systems that moved themselves are put back: one of ours behind what it stood behind, any other behind everything that
// can boot. All else stays as it stands, so what a person or firmware changed is respected; so does an id without an entry.
func PlanBootOrder(policy BootPolicy, own []BootEntry, v BootView) []string {
	byID := v.byID()
	order, network := []string{}, []string{}
	for _, id := range v.Order {
		if e := byID[id]; policy == BootNetworkFirst && e.Kind == BootNetwork && !e.Inactive {
			network = append(network, id)
			continue
		}
		order = append(order, id)
	}
	if own != nil {
		order = plan{own, byID}.putBack(order)
	}
	return append(network, order...)
}

// plan is our order beside what was found.
type plan struct {
	own  []BootEntry
	byID map[string]BootEntry
}

// place is where an entry stands in our order, -1 when it is not in it.
func (p plan) place(id string) int { return slices.IndexFunc(p.own, p.byID[id].Same) }

func (p plan) putBack(order []string) []string {
	var ours, theirs []string
	for i, id := range order {
		switch at := p.place(id); {
		case p.byID[id].Kind != BootSystem:
		case at >= 0:
			ours = append(ours, id)
		case slices.ContainsFunc(order[i+1:], func(o string) bool { return p.place(o) >= 0 && p.byID[o].Kind != BootFirmware }):
			theirs = append(theirs, id)
		}
	}
	slices.SortStableFunc(ours, func(a, b string) int { return p.place(a) - p.place(b) })
	for _, id := range ours {
		was, at := p.place(id), slices.Index(order, id)
		last := -1 // of what it stood behind
		for i, o := range order {
			if place := p.place(o); place >= 0 && place < was {
				last = i
			}
		}
		if last > at {
			order = slices.Insert(slices.Delete(order, at, at+1), last, id)
		}
	}
	order = slices.DeleteFunc(order, func(id string) bool { return slices.Contains(theirs, id) })
	end := 0 // behind the last that can boot: what follows is firmware's own, such as a shell
	for i, id := range order {
		if p.byID[id].Kind != BootFirmware {
			end = i + 1
		}
	}
	return slices.Insert(order, end, theirs...)
}

func (v BootView) byID() map[string]BootEntry {
	m := make(map[string]BootEntry, len(v.Entries))
	for _, e := range v.Entries {
		m[e.ID] = e
	}
	return m
}

// Ordered gives the entries of the order, as they are tried. An id without an entry is left out.
func (v BootView) Ordered() []BootEntry {
	byID := v.byID()
	out := make([]BootEntry, 0, len(v.Order))
	for _, id := range v.Order {
		if e, ok := byID[id]; ok {
			out = append(out, e)
		}
	}
	return out
}

// BootChanges tells in sentences how an order differs from an earlier one, and whether a system did it: it was added, or
// moved forward.
func BootChanges(was, is BootView) (what []string, system bool) {
	before, after := was.Ordered(), is.Ordered()
	place := func(list []BootEntry, e BootEntry) int { return slices.IndexFunc(list, e.Same) }
	stay := stayed(before, after)
	for i, e := range after {
		switch at := place(before, e); {
		case stay[i]:
		case at < 0 && place(was.Entries, e) >= 0:
			what = append(what, fmt.Sprintf("%s was put into the order, at %d", e.Title(), i+1))
			system = system || e.Kind == BootSystem
		case at < 0:
			what = append(what, fmt.Sprintf("%s was added, at %d", e.Title(), i+1))
			system = system || e.Kind == BootSystem
		default:
			what = append(what, fmt.Sprintf("%s was moved from %d to %d", e.Title(), at+1, i+1))
			system = system || e.Kind == BootSystem && jumped(before, after, at, i)
		}
	}
	for _, e := range before {
		if place(after, e) < 0 {
			what = append(what, e.Title()+" is gone from the order")
		}
	}
	return what, system
}

// stayed tells of each entry of after whether it follows those that it followed before, for as many as can be said so of
// together: the others are what was moved. Of a system and another entry that changed places, the system was.
func stayed(before, after []BootEntry) []bool {
	n := len(after)
	at, best, prev := make([]int, n), make([]int, n), make([]int, n) // the heaviest sequence in both that ends with each
	end := -1
	for i, e := range after {
		prev[i] = -1
		if at[i] = slices.IndexFunc(before, e.Same); at[i] < 0 {
			continue
		}
		for j := range i {
			if at[j] >= 0 && at[j] <= at[i] && best[j] > best[i] {
				best[i], prev[i] = best[j], j
			}
		}
		if best[i] += 3; e.Kind == BootSystem {
			best[i]--
		}
		if end < 0 || best[i] >= best[end] {
			end = i
		}
	}
	out := make([]bool, n)
	for ; end >= 0; end = prev[end] {
		out[end] = true
	}
	return out
}

// jumped reports whether the entry at place is of after stands in front of one that it stood behind.
func jumped(before, after []BootEntry, was, is int) bool {
	for _, o := range after[is+1:] {
		if at := slices.IndexFunc(before, o.Same); at >= 0 && at < was {
			return true
		}
	}
	return false
}

// Title is what people call an entry: "debian (disk partition …)", "UEFI PXE IPv4 52:54:…".
func (e BootEntry) Title() string {
	name := e.Name
	if name == "" {
		name = e.ID
	}
	switch {
	case e.Kind == BootNetwork && e.MAC != "" && !strings.Contains(strings.ToLower(name), e.MAC):
		return fmt.Sprintf("%s (%s %s)", name, e.Protocol, e.MAC)
	case e.Kind == BootSystem && e.File != "":
		return fmt.Sprintf("%s (%s)", name, e.File)
	}
	return name
}
