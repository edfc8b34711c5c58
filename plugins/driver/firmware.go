package driver

// Firmware lists and updates firmware.
//
//	components()              -> [{"id", "name"?, "version"?, "updateable"?}, ...]
//	update(component, image)  -> {} or FirmwareResult   image: {"url", "sha256"?}
type Firmware interface {
	Components(ctx *Context) ([]FirmwareComponent, error)
	Update(ctx *Context, component string, image FirmwareImage) (FirmwareResult, error)
}

// FirmwareComponent is a part with firmware of its own.
type FirmwareComponent struct {
	ID         string `json:"id"`
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	Updateable bool   `json:"updateable,omitempty"`
}

// FirmwareImage is a file that the BMC can fetch.
type FirmwareImage struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256,omitempty"`
}

// FirmwareResult is the version read back, and whether it takes a reboot.
type FirmwareResult struct {
	Version  string `json:"version,omitempty"`
	OnReboot bool   `json:"onReboot,omitempty"`
}

func firmwareKind() Kind {
	return Kind{Name: "firmware", Operations: []Operation{
		op0("components", Firmware.Components),
		op2("update", "component", "image", Firmware.Update),
	}}
}
