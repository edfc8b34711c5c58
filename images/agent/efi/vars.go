package efi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/u-root/u-root/pkg/efivarfs"
	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// global is the vendor of the variables that UEFI itself defines.
var global = uuid.MustParse("8be4df61-93ca-11d2-aa0d-00e098032b8c")

// attrsOrder are those of BootOrder, where it does not exist yet: kept, and there for boot and run time.
const attrsOrder = efivarfs.AttributeNonVolatile | efivarfs.AttributeBootserviceAccess | efivarfs.AttributeRuntimeAccess

// Variables is the boot order of this machine's firmware.
type Variables struct{ fs efivarfs.EFIVar }

// state is everything that was read.
type state struct {
	options map[uint16]Option
	broken  []uint16 // entries that are no load option
	order   []uint16
	current *uint16
	next    *uint16
	timeout *uint16
}

func variable(name string) efivarfs.VariableDescriptor {
	return efivarfs.VariableDescriptor{Name: name, GUID: global}
}

func bootName(n uint16) string { return fmt.Sprintf("Boot%04X", n) }

// bootNumber reads the number of a Boot#### variable.
func bootNumber(name string) (uint16, bool) {
	hex, ok := strings.CutPrefix(name, "Boot")
	if !ok || len(hex) != 4 || strings.ToUpper(hex) != hex {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 16)
	return uint16(n), err == nil
}

// read reads the whole boot order.
func (v Variables) read() (*state, error) {
	all, err := v.fs.List()
	if err != nil {
		return nil, unavailable(err)
	}
	s := &state{options: map[uint16]Option{}}
	for _, d := range all {
		n, ok := bootNumber(d.Name)
		if !ok || d.GUID != global {
			continue
		}
		if len(s.options)+len(s.broken) == maxEntries {
			break
		}
		_, raw, err := v.fs.Get(d)
		if errors.Is(err, efivarfs.ErrVarNotExist) {
			continue // it went since it was listed
		}
		if err != nil {
			return nil, unavailable(err)
		}
		if o, err := ParseOption(raw); err == nil {
			s.options[n] = o
		} else {
			s.broken = append(s.broken, n)
		}
	}
	for name, to := range map[string]**uint16{"BootCurrent": &s.current, "BootNext": &s.next, "Timeout": &s.timeout} {
		if n, err := v.numbers(name); err != nil {
			return nil, err
		} else if len(n) == 1 {
			*to = &n[0]
		}
	}
	s.order, err = v.numbers("BootOrder")
	return s, err
}

// numbers reads a variable that holds numbers of entries; none when there is no such variable.
func (v Variables) numbers(name string) ([]uint16, error) {
	_, raw, err := v.fs.Get(variable(name))
	if errors.Is(err, efivarfs.ErrVarNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	var out []uint16
	for i := 0; i+1 < len(raw) && len(out) < maxEntries; i += 2 {
		out = append(out, binary.LittleEndian.Uint16(raw[i:]))
	}
	return out, nil
}

// writeOrder writes BootOrder and reads it back.
func (v Variables) writeOrder(order []uint16) error {
	attrs, _, err := v.fs.Get(variable("BootOrder"))
	switch {
	case errors.Is(err, efivarfs.ErrVarNotExist):
		attrs = attrsOrder
	case err != nil:
		return unavailable(err)
	}
	var raw []byte
	for _, n := range order {
		raw = binary.LittleEndian.AppendUint16(raw, n)
	}
	if err := v.fs.Set(variable("BootOrder"), attrs&^efivarfs.AttributeAppendWrite, raw); err != nil {
		return refused("BootOrder", err)
	}
	now, err := v.numbers("BootOrder")
	if err != nil {
		return err
	}
	if !slices.Equal(now, order) {
		return app.Errorf(app.Conflict, "boot-order-not-kept", "the firmware took another boot order and did not keep it").
			Do("set the boot order in the firmware's setup, or update the firmware")
	}
	return nil
}

// remove removes an entry and looks that it is gone.
func (v Variables) remove(n uint16) error {
	err := v.fs.Remove(variable(bootName(n)))
	if err != nil && !errors.Is(err, efivarfs.ErrVarNotExist) {
		return refused(bootName(n), err)
	}
	if _, _, err := v.fs.Get(variable(bootName(n))); !errors.Is(err, efivarfs.ErrVarNotExist) {
		return app.Errorf(app.Conflict, "boot-entry-not-removed", "the firmware kept the entry %s", bootName(n)).
			Do("remove it in the firmware's setup")
	}
	return nil
}

func unavailable(err error) error {
	return app.Errorf(app.Unavailable, app.ReasonNVRAMUnavailable, "the firmware's variables cannot be read: %w", err).
		Do("see whether the firmware offers its variables to a running system")
}

// refused names why firmware, through the kernel, did not take a write.
func refused(name string, err error) error {
	const setup = "set the boot order in the firmware's setup"
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
		return app.Errorf(app.Conflict, app.ReasonNVRAMFull, "the firmware has no room left for its variables, so %s was not written: %w", name, err).
			Do("update or reset the firmware's settings: that frees what was deleted")
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return app.Errorf(app.Conflict, app.ReasonNVRAMReadOnly, "the firmware lets no system change %s: %w", name, err).
			Do("%s, or allow changes of its variables there", setup)
	}
	return app.Errorf(app.Conflict, "nvram-write-failed", "the firmware did not take %s: %w", name, err).Do(setup)
}

// view puts what was read into the words of the site: the entries of the order first, as they are tried.
func (s *state) view() agentv1.BootView {
	v := agentv1.BootView{Entries: []agentv1.BootEntry{}, Order: []string{}}
	seen := map[uint16]bool{}
	add := func(n uint16) {
		o, ok := s.options[n]
		if !ok || seen[n] {
			return
		}
		seen[n] = true
		e := app.BootEntry{ID: bootName(n), Name: o.Name(), Inactive: !o.Active()}
		describe(&e, o)
		v.Entries = append(v.Entries, agentv1.BootEntry(e))
	}
	for _, n := range s.order {
		v.Order = append(v.Order, bootName(n))
		add(n)
	}
	rest := make([]uint16, 0, len(s.options))
	for n := range s.options {
		rest = append(rest, n)
	}
	slices.Sort(rest)
	for _, n := range rest {
		add(n)
	}
	if s.current != nil {
		v.Current = bootName(*s.current)
	}
	if s.next != nil {
		v.Next = bootName(*s.next)
	}
	if s.timeout != nil {
		seconds := int(*s.timeout)
		v.Timeout = &seconds
	}
	return v
}
