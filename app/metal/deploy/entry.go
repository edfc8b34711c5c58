package deploy

import (
	"context"
	"net/netip"
	"strings"

	"github.com/better-compute/bcd/app"
)

// enter decides how the system is entered first, and says why: by what is asked, by whether anything could be heard of a
// system that hangs, and by how kexec went before on machines of the same make. A make on which it was never tried begins
// with a reboot, unless its hardware profile says that kexec works.
func (v *Verbs) enter(ctx context.Context, m *app.Machine, profile *app.Profile, pl *plan) error {
	known, err := v.recall(ctx, m, pl.Image)
	if err != nil {
		return err
	}
	pl.Kexec, pl.Why = choose(pl.Spec.Boot, pl.Hearing, known, profile != nil && profile.KexecOK)
	return nil
}

// recall gives what is known of kexec for an image on a machine's make.
func (v *Verbs) recall(ctx context.Context, m *app.Machine, image string) (app.KexecMemory, error) {
	name := app.KexecMake(m)
	trials, err := v.cfg.Trials.ListKexecTrials(ctx, name)
	return app.RecallKexec(name, m.Profile, image, trials), err
}

func choose(asked app.BootPath, h hearing, known app.KexecMemory, trusted bool) (kexec bool, why string) {
	switch {
	case asked == app.BootKexec:
		return true, "as asked; " + known.Sentence
	case asked == app.BootReboot:
		return false, "as asked"
	case h == hearsNothing:
		return false, "nothing can be heard of the system on the network it will have, so a kexec that hangs could not be told"
	case known.Verdict == app.KexecKnownGood:
		return true, known.Sentence
	case known.Verdict == app.KexecKnownBad:
		return false, known.Sentence
	case trusted:
		return true, "its hardware profile says that kexec works; " + known.Sentence
	}
	return false, known.Sentence
}

// hearing is what the appliance can expect to hear of a system by the network that a deploy gives it.
type hearing string

const (
	hearsAll     hearing = ""     // it asks DHCP, as images do by themselves
	hearsCall    hearing = "call" // its addresses are all static: the call home is the only sign
	hearsNothing hearing = "none" // and there is no way to the appliance
)

// hear judges a network by the appliance's own address in it.
func hear(n *app.SystemNetwork, site netip.Addr) hearing {
	if n == nil {
		return hearsAll
	}
	h := hearsNothing
	for _, l := range n.Links {
		if l.DHCP {
			return hearsAll
		}
		if leads(l, site) {
			h = hearsCall
		}
	}
	return h
}

// leads reports whether an address or a route of a link reaches a place.
func leads(l app.Link, to netip.Addr) bool {
	for _, a := range l.Addresses {
		if a.Masked().Contains(to) {
			return true
		}
	}
	for _, r := range l.Routes {
		if r.To.Contains(to) {
			return true
		}
	}
	return l.DHCP6 && to.Is6()
}

// hearingOf judges the network of the machine that is deployed.
func (v *Verbs) hearingOf(ctx context.Context, m *app.Machine) (hearing, error) {
	if m.Network == nil {
		return hearsAll, nil
	}
	s, err := v.p.SiteAddress(ctx, m)
	if err != nil {
		return "", err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return hearsAll, nil // nothing can be said without our own address
	}
	return hear(m.Network, a), nil
}

// addresses are where a person finds the system.
func addresses(n *app.SystemNetwork) string {
	var all []string
	if n != nil {
		for _, l := range n.Links {
			for _, a := range l.Addresses {
				all = append(all, a.Addr().String())
			}
		}
	}
	return strings.Join(all, ", ")
}
