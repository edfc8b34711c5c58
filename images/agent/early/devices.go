package early

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Times of the devices' life.
const (
	quiet       = time.Second / 2  // without a new device: settled; loading a driver waits for what it finds at once
	patience    = time.Minute      // then they count as settled however many still turn up
	agentAtMost = 10 * time.Second // a slow controller holds the agent back no longer
)

// byName are drivers without an alias, each wanted when one of the others is there.
var byName = map[string][]string{
	"ipmi_devintf": {"ipmi_si", "ipmi_ssif"}, // /dev/ipmi0
}

// devices follows the machine's devices from the first look on.
type devices struct {
	mods   *modules
	sys    string
	events <-chan uevent     // closed never; from readUevents
	input  func(name string) // told each new input device
	report func(f func(*Report))
	ready  chan struct{} // closed once the first look is done, or took too long
	once   sync.Once
}

// run looks at all devices, then at each that turns up, until ctx ends.
func (d *devices) run(ctx context.Context) {
	busy := 1
	done := make(chan struct{})
	finish := func() {
		select {
		case done <- struct{}{}:
		case <-ctx.Done():
		}
	}
	go func() {
		d.mods.coldplug(d.sys)
		d.named()
		finish()
	}()
	settle, late, slow := time.NewTimer(quiet), time.NewTimer(patience), time.NewTimer(agentAtMost)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.events:
			if e.Action != "add" {
				continue
			}
			settle.Reset(quiet)
			busy++
			go func() {
				d.added(e)
				finish()
			}()
		case <-done:
			busy--
			settle.Reset(quiet)
			d.publish(false)
			if busy == 0 {
				d.start()
			}
		case <-slow.C:
			d.start()
		case <-settle.C:
			if busy == 0 {
				d.publish(true)
			}
		case <-late.C:
			d.publish(true)
		}
	}
}

func (d *devices) start() { d.once.Do(func() { close(d.ready) }) }

func (d *devices) added(e uevent) {
	if e.Modalias != "" && d.mods.plug([]string{e.Modalias}) > 0 {
		d.named()
	}
	if e.Subsystem == "input" && e.DevName != "" && d.input != nil {
		d.input(e.DevName)
	}
}

// named loads the drivers that no device asks for.
func (d *devices) named() {
	for name, after := range byName {
		d.mods.mu.Lock()
		want := slices.ContainsFunc(after, func(n string) bool { return slices.Contains(d.mods.loaded, n) })
		d.mods.mu.Unlock()
		if want {
			d.mods.load(name)
		}
	}
}

// publish brings the report up to date. Settled stays true once it is.
func (d *devices) publish(settled bool) {
	d.mods.mu.Lock()
	defer d.mods.mu.Unlock()
	d.report(func(r *Report) {
		r.Settled = r.Settled || settled
		r.Loaded = slices.Clone(d.mods.loaded)
		r.Failed = make(map[string]string, len(d.mods.failed))
		for n, err := range d.mods.failed {
			r.Failed[n] = err.Error()
		}
	})
}
