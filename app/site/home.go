package site

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/deploy"
)

// homePath is where installed systems call, on the boot listener: POST with the kernel's boot id as body.
const homePath = "/phone-home/"

var bootIDRE = regexp.MustCompile(`^[0-9a-f-]{36}$`)

// home takes the calls of installed systems.
type home struct {
	key    []byte
	agents app.AgentStore
	db     app.MachineStore
	revoke func(ctx context.Context, machineID string) error // of boots and agent sessions
	signal func(machineID, name string, data any)
	record func(app.Event)
	now    func() time.Time
}

func hashOf(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// url makes the address of a workflow and remembers its hash. The secret is a function of the workflow, so a repeated
// delivery of the seed has the same bytes, and no secret is stored.
func (h *home) url(ctx context.Context, m *app.Machine, workflowID, base string) (string, error) {
	mac := hmac.New(sha256.New, h.key)
	mac.Write([]byte("bcd phone-home\x00" + workflowID))
	secret := hex.EncodeToString(mac.Sum(nil)[:16])
	err := h.agents.PutPhoneHome(ctx, &app.PhoneHome{SecretHash: hashOf(secret), MachineID: m.ID, WorkflowID: workflowID, Created: h.now().UTC()})
	return base + homePath + secret, err
}

// ServeHTTP answers 204 to a known secret and 404 to all others.
func (h *home) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret := strings.TrimPrefix(r.URL.Path, homePath)
	if r.Method != http.MethodPost || len(secret) != 32 {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 256))
	if err != nil {
		return // the caller went away
	}
	p, err := h.agents.PhoneHome(r.Context(), hashOf(secret))
	if err == nil {
		err = h.called(r.Context(), p, strings.TrimSpace(string(body)))
	}
	switch {
	case app.CodeOf(err) == app.NotFound:
		http.Error(w, "not found", http.StatusNotFound)
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (h *home) called(ctx context.Context, p *app.PhoneHome, bootID string) error {
	if !bootIDRE.MatchString(bootID) {
		bootID = ""
	}
	first := false
	m, err := h.db.UpdateMachine(ctx, p.MachineID, func(m *app.Machine) error {
		d := m.Deployment
		if d == nil || d.WorkflowID != p.WorkflowID { // released, or another image by now
			return app.Missing("deployment", m.Name)
		}
		now := h.now().UTC()
		if d.Alive.IsZero() {
			d.Alive = now
		}
		if first = d.PhonedHome.IsZero(); first {
			d.PhonedHome = now
		}
		d.Heartbeat, d.BootID, d.Confirmed = now, bootID, true
		if m.State == app.StateDeployed {
			m.StateReason = ""
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := h.ramdiskOver(ctx, p); err != nil {
		return err
	}
	what := "the installed system called: it has booted again"
	if first {
		what = "the installed system called: it runs"
	}
	h.record(app.Event{Time: h.now().UTC(), Kind: "os.home", Level: "info", MachineID: m.ID, Workflow: p.WorkflowID, Message: what})
	h.signal(m.ID, deploy.SignalHome, nil)
	return nil
}

// ramdiskOver ends the ramdisk of the deploy whose system calls: the machine has left it, and nobody should wait for its
// agent any more.
func (h *home) ramdiskOver(ctx context.Context, p *app.PhoneHome) error {
	b, err := h.agents.LiveBoot(ctx, p.MachineID)
	if app.CodeOf(err) == app.NotFound || (err == nil && b.WorkflowID != p.WorkflowID) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.revoke(ctx, p.MachineID)
}

// sawFrame notes a sign of life of an installed system: an address asked for by a machine whose image is written and that
// may not netboot into the ramdisk any more.
func (h *home) sawFrame(ctx context.Context, m *app.Machine) {
	if m.Deployment == nil || m.Deployment.Written.IsZero() || !m.Deployment.Alive.IsZero() {
		return
	}
	if _, err := h.agents.LiveBoot(ctx, m.ID); app.CodeOf(err) != app.NotFound {
		return
	}
	_, err := h.db.UpdateMachine(ctx, m.ID, func(m *app.Machine) error {
		if m.Deployment != nil && m.Deployment.Alive.IsZero() {
			m.Deployment.Alive = h.now().UTC()
		}
		return nil
	})
	if err == nil {
		h.record(app.Event{Time: h.now().UTC(), Kind: "os.alive", Level: "info", MachineID: m.ID, Message: "the installed system asked for an address: it lives"})
		h.signal(m.ID, deploy.SignalAlive, nil)
	}
}
