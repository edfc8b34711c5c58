package webtest

import (
	"context"
	"net/netip"
	"strings"
	"sync"

	"github.com/better-compute/bcd/app"
)

// Wire is a netboot service with the rivals that it is given. Text is put wherever a rival can say something.
type Wire struct {
	Text string

	mu      sync.Mutex // protects what follows
	found   []app.Rival
	err     error
	changes int
	freed   []string
}

// Find makes the next looks for rivals give these, or an error.
func (w *Wire) Find(found []app.Rival, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found, w.err = found, err
}

// Told tells how often subnets changed, and which leases were freed.
func (w *Wire) Told() (changes int, freed string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes, strings.Join(w.freed, " ")
}

// SubnetsChanged counts.
func (w *Wire) SubnetsChanged() { w.mu.Lock(); defer w.mu.Unlock(); w.changes++ }

// Free notes the lease.
func (w *Wire) Free(mac app.MAC, a netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = append(w.freed, string(mac)+"="+a.String())
}

// Rivals gives what was found, with the text.
func (w *Wire) Rivals() []app.Rival {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := append([]app.Rival(nil), w.found...)
	for i := range out {
		out[i].BootFile += w.Text
	}
	return out
}

// SeekRivals gives the same.
func (w *Wire) SeekRivals(context.Context, string) ([]app.Rival, error) {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	return w.Rivals(), err
}

// Notes has one note for subnets that answer.
func (w *Wire) Notes(s app.Subnet) []string {
	if !s.Answers() {
		return nil
	}
	return []string{"Interface " + s.Interface + " has no link."}
}

// KeepYours gives the lines of one server.
func (w *Wire) KeepYours(app.Subnet) []app.ServerLines {
	return []app.ServerLines{{Server: "dnsmasq", Where: "in dnsmasq.conf", Lines: []string{"dhcp-boot=x", "dhcp-boot=y"}}}
}
