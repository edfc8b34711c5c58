package lab

import (
	"context"
	"io"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/plugins/host"
)

// Program is what the lab's appliance is made of.
type Program struct {
	Version string
	Ramdisk string    // directory of a built ramdisk; "" for the one inside the binary
	Flavour string    // of the one inside the binary; default "lab": virtual machines need few drivers
	Output  io.Writer // what the appliance says at its start; may be nil
	// Silence is how long nothing may be heard of a system before its machine is reset; 0: as the appliance has it.
	Silence time.Duration
	// Builtins are the plugins this executable can be; see site.Config. nil: the appliance has no driver ipmi.
	Builtins map[string]host.Bundled
}

// Start is a Config.Start: the appliance in this process, its provisioning side in the lab's namespace, its console in the
// host's.
func (p Program) Start(ctx context.Context, a Appliance) (Site, error) {
	var f site.File
	f.Site.Name, f.Site.DataDir = "lab", a.DataDir
	f.Listen.Console, f.Listen.Agent, f.Listen.Boot = a.Console, site.DefaultAgent, site.DefaultBoot
	f.Netboot.Ramdisk = p.Ramdisk
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if p.Flavour == "" {
		p.Flavour = "lab"
	}
	s, err := site.New(ctx, site.Config{File: f, Version: p.Version, Log: a.Log, Terminal: p.Output, Sockets: a.Network.Do, Flavour: p.Flavour, Builtins: p.Builtins, Silence: p.Silence})
	if err != nil {
		return nil, err
	}
	r := &running{Site: s, done: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(r.done)
		r.err = s.RunReady(ctx, func() { close(ready) })
	}()
	select {
	case <-ready:
		return r, nil
	case <-r.done:
		if r.err == nil {
			r.err = app.Errorf(app.Unavailable, "site-ended", "the appliance ended before it was up")
		}
		return nil, r.err
	}
}

// running is an appliance with its end.
type running struct {
	*site.Site
	done chan struct{}
	err  error // valid once done is closed
}

// Wait implements Site.
func (r *running) Wait() error {
	<-r.done
	return r.err
}
