package commission

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// link looks at every port of the machine, the BMC's own left out: has it a link, how fast, and where does it lead.
func (t *Tester) link(ctx context.Context, r *run) error {
	ports, err := t.ports(ctx, r)
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return cannot("this machine has no network port")
	}
	up, half := 0, 0
	for _, p := range ports {
		r.did()
		if p.LLDP != nil {
			r.text(p.Name, "leads to", "%s port %s %s", p.LLDP.System, p.LLDP.Port, p.LLDP.Chassis)
		}
		if !p.Link {
			r.text(p.Name, "link", "none")
			continue
		}
		up++
		duplex := readText(filepath.Join(t.cfg.Sys, "class/net", p.Name, "duplex"))
		if duplex == "half" {
			half++
		}
		t.speed(r, p, duplex)
	}
	r.atLeast("ports", "with a link", "ports", float64(up), "minPorts")
	r.atMost("ports", "in half duplex", "ports", float64(half), "halfDuplex")
	return nil
}

// speed tells how fast a port is. Paravirtual ones do not say, and are not judged.
func (t *Tester) speed(r *run, p agentv1.NIC, duplex string) {
	if duplex == "full" || duplex == "half" {
		duplex = ", " + duplex + " duplex"
	} else {
		duplex = ""
	}
	if p.Speed > 0 {
		r.text(p.Name, "link", "up%s", duplex)
		r.atLeast(p.Name, "speed", "Mbit/s", float64(p.Speed), "minMbps")
		return
	}
	r.text(p.Name, "link", "up%s, its driver does not say how fast", duplex)
	if r.with["minMbps"] > 0 {
		r.skip(p.Name, "its driver does not say how fast it is")
	}
}

// ports lists the machine's own ports, waiting for links and neighbours as long as the order says.
func (t *Tester) ports(ctx context.Context, r *run) ([]agentv1.NIC, error) {
	wait := int64(r.with["wait"])
	for sofar := int64(0); ; sofar++ {
		all, err := t.cfg.Ports()
		if err != nil && len(all) == 0 {
			return nil, cannot("the network ports cannot be listed: %v", err)
		}
		var own []agentv1.NIC
		quiet := 0
		for _, p := range all {
			if p.Virtual || p.BMCUSB {
				continue
			}
			own = append(own, p)
			if !p.Link || p.LLDP == nil {
				quiet++
			}
		}
		if quiet == 0 || sofar >= wait {
			return own, nil
		}
		r.progress(sofar, wait, "s", fmt.Sprintf("%d of %d ports without link or neighbour", quiet, len(own)))
		if !pause(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}
