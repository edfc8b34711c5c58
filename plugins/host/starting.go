package host

import "context"

// Loaded is closed when Run has read the pins and the drivers that the plugins served last are known again.
func (h *Host) Loaded() <-chan struct{} { return h.loaded }

// Starting names the plugins that have neither answered nor failed yet since they were pinned as they are, and gives what is
// closed when one of them does. It waits first until Run has read the pins, or for the end of ctx.
func (h *Host) Starting(ctx context.Context) (names []string, changed <-chan struct{}) {
	select {
	case <-h.loaded:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.all() {
		select {
		case <-p.first:
		default:
			names = append(names, p.name)
		}
	}
	return names, h.changed
}

// answered notes that a plugin has answered or failed its first start.
func (h *Host) answered(p *plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(p.first)
	close(h.changed)
	h.changed = make(chan struct{})
}
