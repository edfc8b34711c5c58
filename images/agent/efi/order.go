package efi

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/u-root/u-root/pkg/efivarfs"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Handler is agent.Handler.
type Handler = func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error)

// Config of a Keeper. Firmware, Disks and Log are required.
type Config struct {
	Firmware string                                            // "bios" or "uefi"
	Disks    func(ctx context.Context) ([]agentv1.Disk, error) // the inventory of disks, at the time of the order
	Log      *slog.Logger
	Dev      string                          // "": /dev
	Open     func() (efivarfs.EFIVar, error) // nil: the kernel's
}

// Keeper serves agent.boot-order.
type Keeper struct{ cfg Config }

// New makes a Keeper. It touches nothing.
func New(cfg Config) *Keeper {
	if cfg.Dev == "" {
		cfg.Dev = "/dev"
	}
	if cfg.Open == nil {
		cfg.Open = func() (efivarfs.EFIVar, error) { return efivarfs.New() }
	}
	return &Keeper{cfg}
}

// Handlers gives the commands this package serves, by kind.
func (k *Keeper) Handlers() map[string]Handler {
	return map[string]Handler{agentv1.KindBootOrder: func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		var order agentv1.BootOrder
		if err := json.Unmarshal(cmd.Payload, &order); err != nil {
			return nil, app.Errorf(app.InvalidInput, "bad-payload", "the payload of %s cannot be read: %w", cmd.Kind, err)
		}
		progress(agentv1.ProgressReport{Phase: "boot order"})
		return k.Keep(ctx, order), nil
	}}
}

// Keep reads the boot order and, when this agent is the one that writes it, removes what a wiped disk left and puts the order
// right. Everything is decided from what is found now, so doing it twice does nothing more than once.
func (k *Keeper) Keep(ctx context.Context, order agentv1.BootOrder) *agentv1.BootOrderResult {
	r := &agentv1.BootOrderResult{Firmware: k.cfg.Firmware, Found: agentv1.BootView{Entries: []agentv1.BootEntry{}, Order: []string{}}}
	disks, err := k.cfg.Disks(ctx)
	if err != nil {
		r.Partial = append(r.Partial, "disks: "+clean(err.Error(), maxText))
	}
	var partial []string
	r.Partitions, partial = partitions(k.cfg.Dev, disks)
	r.Partial = append(r.Partial, partial...)
	if k.cfg.Firmware != string(app.FirmwareUEFI) {
		return r
	}
	if err := k.keep(order, r); err != nil {
		k.cfg.Log.Warn("the boot order is not as it should be", "error", err)
		r.Problem = problem(err)
	}
	return r
}

func (k *Keeper) keep(order agentv1.BootOrder, r *agentv1.BootOrderResult) error {
	fs, err := k.cfg.Open()
	if err != nil {
		return unavailable(err)
	}
	v := Variables{fs}
	s, err := v.read()
	if err != nil {
		return err
	}
	r.Found = s.view()
	if !order.Write {
		return nil
	}
	dead := s.dead(order.Remove, r)
	left := s.without(dead)
	want := left.plan(order)
	if len(dead) == 0 && slices.Equal(want, s.order) {
		return nil
	}
	err = k.write(v, s, want, dead)
	// Whatever became of it, what there is now is read again.
	now, rerr := v.read()
	if rerr != nil {
		return firstError(err, rerr)
	}
	view := now.view()
	r.Now = &view
	for _, e := range r.Found.Entries {
		if n, _ := bootNumber(e.ID); slices.Contains(dead, n) && !has16(now, n) {
			r.Removed = append(r.Removed, e)
		}
	}
	return err
}

// write writes the order first: an entry that is gone from it can be removed, at any time and again.
func (k *Keeper) write(v Variables, s *state, want, dead []uint16) error {
	if !slices.Equal(want, s.order) {
		if err := v.writeOrder(want); err != nil {
			return err
		}
		k.cfg.Log.Info("the boot order was written", "order", names(want))
	}
	for _, n := range dead {
		if err := v.remove(n); err != nil {
			return err
		}
		k.cfg.Log.Info("an entry of a wiped disk was removed", "entry", bootName(n), "name", s.options[n].Name())
	}
	return nil
}

// dead lists the entries of partitions that went with a wiped disk. None while a disk could not be read: it may have them.
func (s *state) dead(gone []string, r *agentv1.BootOrderResult) []uint16 {
	if len(gone) == 0 || len(r.Partial) > 0 {
		return nil
	}
	var out []uint16
	for _, e := range r.Found.Entries {
		there := slices.ContainsFunc(r.Partitions, func(p agentv1.BootPartition) bool { return p.Partition == e.Partition })
		if n, ok := bootNumber(e.ID); ok && e.Kind == app.BootSystem && e.Partition != "" && slices.Contains(gone, e.Partition) && !there {
			out = append(out, n)
		}
	}
	return out
}

// without is the state with entries gone.
func (s *state) without(gone []uint16) *state {
	left := &state{options: map[uint16]Option{}}
	for n, o := range s.options {
		if !slices.Contains(gone, n) {
			left.options[n] = o
		}
	}
	for _, n := range s.order {
		if !slices.Contains(gone, n) {
			left.order = append(left.order, n)
		}
	}
	return left
}

// plan is the order that the machine shall have.
func (s *state) plan(order agentv1.BootOrder) []uint16 {
	view := s.view()
	v := app.BootView{Order: view.Order}
	for _, e := range view.Entries {
		v.Entries = append(v.Entries, app.BootEntry(e))
	}
	var own []app.BootEntry
	for _, e := range order.Own {
		own = append(own, app.BootEntry(e))
	}
	var out []uint16
	for _, id := range app.PlanBootOrder(app.BootPolicy(order.Policy), own, v) {
		if n, ok := bootNumber(id); ok {
			out = append(out, n)
		}
	}
	return out
}

func has16(s *state, n uint16) bool { _, ok := s.options[n]; return ok }

func names(order []uint16) (out []string) {
	for _, n := range order {
		out = append(out, bootName(n))
	}
	return out
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func problem(err error) *agentv1.Error {
	e, ok := app.AsError(err)
	if !ok {
		e = app.Errorf(app.Internal, "boot-order-failed", "the boot order could not be kept: %w", err)
	}
	return &agentv1.Error{Code: string(e.Code), Reason: e.Reason, Message: clean(e.Message, maxPath), WayOut: e.WayOut, Retryable: e.Retry}
}
