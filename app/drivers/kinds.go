package drivers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// none is the result of operations without one: {} or whatever else a driver says.
type none struct{}

// UnmarshalJSON accepts anything.
func (*none) UnmarshalJSON([]byte) error { return nil }

// Power is the power of one machine.
type Power struct{ h *Handle }

// Power gives the machine's power.
func (h *Handle) Power() Power { return Power{h} }

// Get reads the power state; unknown comes with a reason.
func (p Power) Get(ctx context.Context) (driver.PowerReading, error) {
	r, err := call[driver.PowerReading](ctx, p.h, CommandQuery, "power", "getPower")
	if err == nil && r.Power != driver.PowerOn && r.Power != driver.PowerOff {
		if r.Reason == "" {
			r.Reason = fmt.Sprintf("the driver says %.40q", r.Power)
		}
		r.Power = driver.PowerUnknown
	}
	return r, err
}

// Set changes the power and returns when the BMC reads back the end of it.
func (p Power) Set(ctx context.Context, action driver.PowerAction) error {
	_, err := call[none](ctx, p.h, CommandPower, "power", "setPower", action)
	return err
}

// Management is the boot device and the credential of one machine's BMC.
type Management struct{ h *Handle }

// Management gives the machine's management.
func (h *Handle) Management() Management { return Management{h} }

// SetBootDevice sets what the machine boots next and returns when it reads back.
func (m Management) SetBootDevice(ctx context.Context, d driver.BootDevice, o driver.BootOptions) (driver.BootResult, error) {
	return call[driver.BootResult](ctx, m.h, CommandBoot, "management", "setBootDevice", d, o)
}

// BootOrder reads the order in which firmware tries its boot options; UNSUPPORTED when the BMC has none.
func (m Management) BootOrder(ctx context.Context) (driver.BootOrder, error) {
	return call[driver.BootOrder](ctx, m.h, CommandQuery, "management", "getBootOrder")
}

// SetBootOrder writes that order, every id of it, and gives it as it reads back.
func (m Management) SetBootOrder(ctx context.Context, order []string) (driver.BootOrder, error) {
	return call[driver.BootOrder](ctx, m.h, CommandBoot, "management", "setBootOrder", order)
}

// Rotate changes the password of the BMC account, username "" for the one in use. Storing the new password is the
// caller's part. It works only with a credential in this site's own store.
func (m Management) Rotate(ctx context.Context, newPassword, username string) error {
	if m.h.m.BMC == nil || !strings.HasPrefix(m.h.m.BMC.CredentialRef, "secret://") {
		return app.Errorf(app.Unsupported, "rotation-unsupported", "only a credential stored here can be rotated").
			Do("rotate it where it is kept")
	}
	args, err := json.Marshal([]any{nil, driver.RotateOptions{Username: username}})
	if err != nil {
		return err
	}
	_, err = m.h.operate(ctx, CommandRotate, "management", "rotateCredential", args, driver.SecretMap{"newPassword": newPassword})
	return err
}

// Inspect reads what the BMC says about the machine, out of band.
func (h *Handle) Inspect(ctx context.Context) (driver.Inventory, error) {
	return call[driver.Inventory](ctx, h, CommandQuery, "inspect", "inspect")
}

// VirtualMedia is the machine's virtual drive.
type VirtualMedia struct{ h *Handle }

// VirtualMedia gives the machine's virtual drive.
func (h *Handle) VirtualMedia() VirtualMedia { return VirtualMedia{h} }

// Insert puts an image, an http or https URL, into the drive.
func (v VirtualMedia) Insert(ctx context.Context, iso string) error {
	_, err := call[none](ctx, v.h, CommandBoot, "virtual-media", "insert", iso)
	return err
}

// Eject empties the drive.
func (v VirtualMedia) Eject(ctx context.Context) error {
	_, err := call[none](ctx, v.h, CommandBoot, "virtual-media", "eject")
	return err
}

// Query asks the BMC by an operation that only looks, one of Queries.
func (h *Handle) Query(ctx context.Context, operation string) (json.RawMessage, error) {
	kind, op, _ := strings.Cut(operation, ".")
	return h.operate(ctx, CommandQuery, kind, op, json.RawMessage("[]"), nil)
}

// ApplyBIOS changes firmware settings.
func (h *Handle) ApplyBIOS(ctx context.Context, settings map[string]any) (driver.BIOSResult, error) {
	return call[driver.BIOSResult](ctx, h, CommandConfig, "bios", "applySettings", settings)
}

// ApplyRAID makes the volumes of a layout, destroying what they hold, and gives the layout as it reads back.
func (h *Handle) ApplyRAID(ctx context.Context, layout driver.RAIDLayout) (driver.RAIDLayout, error) {
	return call[driver.RAIDLayout](ctx, h, CommandConfig, "raid", "applyLayout", layout)
}

// UpdateFirmware brings a component to an image.
func (h *Handle) UpdateFirmware(ctx context.Context, component string, image driver.FirmwareImage) (driver.FirmwareResult, error) {
	return call[driver.FirmwareResult](ctx, h, CommandFirmware, "firmware", "update", component, image)
}

// Console opens the machine's serial console.
func (h *Handle) Console(ctx context.Context) (io.ReadWriteCloser, error) {
	return h.Stream(ctx, "console", "open", nil)
}

// Hardware is a Handle in the words of the verbs of a machine's life.
type Hardware struct{ h *Handle }

// Hardware gives power and boot device in the verbs' words.
func (h *Handle) Hardware() Hardware { return Hardware{h} }

// Power reads the power state.
func (w Hardware) Power(ctx context.Context) (app.Power, error) {
	r, err := w.h.Power().Get(ctx)
	if err != nil {
		return app.PowerUnknown, err
	}
	return app.Power(r.Power), nil
}

// SetPower takes "on", "off", "soft", "cycle", "reset".
func (w Hardware) SetPower(ctx context.Context, action string) error {
	return w.h.Power().Set(ctx, driver.PowerAction(action))
}

// SetBootDevice takes "pxe", "disk", "cdrom", "bios". firmware "" leaves the boot mode as it is.
func (w Hardware) SetBootDevice(ctx context.Context, device string, persistent bool, firmware app.Firmware) error {
	o := driver.BootOptions{Persistent: persistent}
	if firmware != "" {
		uefi := firmware == app.FirmwareUEFI
		o.UEFI = &uefi
	}
	_, err := w.h.Management().SetBootDevice(ctx, driver.BootDevice(device), o)
	return err
}
