package driver

// BIOS reads and changes firmware settings.
//
//	getSettings()            -> {"<attribute>": string|number|boolean|null, ...}
//	applySettings(settings)  -> {} or BIOSResult
type BIOS interface {
	GetSettings(ctx *Context) (map[string]any, error)
	ApplySettings(ctx *Context, settings map[string]any) (BIOSResult, error)
}

// BIOSResult says what takes effect when.
type BIOSResult struct {
	Changed  []string `json:"changed,omitempty"`  // attributes whose value differed
	OnReboot bool     `json:"onReboot,omitempty"` // they take effect at the next boot
}

func biosKind() Kind {
	return Kind{Name: "bios", Operations: []Operation{
		op0("getSettings", BIOS.GetSettings),
		op1("applySettings", "settings", BIOS.ApplySettings),
	}}
}
