package host

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// to moves the plugin to a state; the caller holds mu.
func (p *plugin) to(s State) {
	p.status.WayOut = ""
	if p.status.State != s {
		p.status.State, p.status.Since = s, p.host.clock.Now().UTC()
	}
	p.status.Next = time.Time{}
}

// begin notes that a start begins.
func (p *plugin) begin() {
	select {
	case <-p.kick: // this is the start that was asked for
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to(Starting)
	p.status.Restarts++
	p.status.Sandbox = sandbox.Facts{}
}

// started notes the process of a start.
func (p *plugin) started(run *process) {
	p.mu.Lock()
	p.status.PID, p.status.Sandbox = run.pid(), run.prepared.Facts
	p.mu.Unlock()
	p.host.log.Debug("plugin started", "plugin", p.name, "pid", run.pid(), "uid", run.prepared.Facts.UID)
}

// admit lets calls go to a run.
func (p *plugin) admit(run *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.reason = run.conn, ""
}

// up says that the plugin runs.
func (p *plugin) up(desc bcx.Description) {
	served := make([]string, 0, len(desc.Drivers))
	for _, d := range desc.Drivers {
		served = append(served, d.ID+" "+d.Version)
		p.host.log.Info("a plugin serves a driver", "plugin", p.name, "driver", d.ID, "version", d.Version, "kinds", d.Kinds)
	}
	p.host.record("plugin.up", "info", "the plugin "+p.name+" runs and serves "+strings.Join(served, ", "))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to(Running)
	p.status.Reason, p.status.Message, p.status.Serving, p.status.Version = "", "", true, clip(desc.PluginVersion)
}

// healthy notes what a running plugin says of itself.
func (p *plugin) healthy(serving bool, message string) {
	p.mu.Lock()
	changed := p.conn != nil && (p.status.Serving != serving || p.status.Message != message)
	if changed {
		p.status.Serving, p.status.Message = serving, message
	}
	p.mu.Unlock()
	if !changed {
		return
	}
	level := slog.LevelInfo
	if !serving {
		level = slog.LevelWarn
	}
	p.host.log.Log(context.Background(), level, "a plugin told its health", "plugin", p.name, "serving", serving, "message", message)
	p.tellRegistry(serving, "the plugin says that it cannot work: "+message)
	if serving {
		p.host.record("plugin.up", "info", "the plugin "+p.name+" can work again")
	} else {
		p.host.record("plugin.down", "warn", "the plugin "+p.name+" cannot work: "+message)
	}
}

// down stops calls: those that come from now on are refused at once with the reason.
func (p *plugin) down(reason string, s State) {
	p.mu.Lock()
	p.to(s)
	p.conn, p.reason = nil, reason
	p.status.Reason, p.status.Serving, p.status.Message = reason, false, ""
	p.mu.Unlock()
	p.tellRegistry(false, reason)
}

// rest notes that no process is there, why, and when the next comes.
func (p *plugin) rest(s State, why error, next time.Time) {
	p.mu.Lock()
	p.to(s)
	p.status.Next, p.status.PID, p.conn = next.UTC(), 0, nil
	if next.IsZero() {
		p.status.Next = time.Time{}
	}
	if s == Refused {
		p.status.WayOut = wayOut(p.name, p.src.bundled, why)
	}
	if why != nil {
		p.reason = clip(why.Error())
		p.status.Reason, p.status.LastErr, p.status.LastAt = p.reason, p.reason, p.host.clock.Now().UTC()
	} else {
		p.reason, p.status.Reason = "it was stopped", ""
	}
	p.status.Serving = false
	reason := p.reason
	p.mu.Unlock()
	p.tellRegistry(false, reason)
	if why == nil {
		return
	}
	p.host.log.Warn("plugin is down", "plugin", p.name, "state", string(s), "error", reason, "again", next)
	if s == Refused {
		p.host.record("plugin.refused", "error", "the plugin "+p.name+" is not run: "+reason)
	} else {
		p.host.record("plugin.down", "warn", "the plugin "+p.name+" is down and is started again: "+reason)
	}
}

// snapshot is the status for people.
func (p *plugin) snapshot() Status {
	p.mu.Lock()
	s := p.status
	for _, key := range sortedKeys(p.served) {
		d := p.served[key].driver
		s.Drivers = append(s.Drivers, Served{d.ID(), d.Version(), d.Kinds()})
	}
	p.mu.Unlock()
	s.Restarts = max(s.Restarts, 0)
	s.Memory = residentBytes(s.PID)
	return s
}
