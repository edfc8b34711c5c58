package driver

// RAID makes volumes of a controller's drives. Both operations destroy data.
//
//	applyLayout(layout)  -> {} or RAIDLayout as read back
//	clear()              -> {}
type RAID interface {
	ApplyLayout(ctx *Context, layout RAIDLayout) (RAIDLayout, error)
	Clear(ctx *Context) error
}

// RAIDReader is the optional half of RAID that only looks.
//
//	getLayout() -> RAIDLayout
type RAIDReader interface {
	GetLayout(ctx *Context) (RAIDLayout, error)
}

// RAIDLayout is the volumes of a machine.
type RAIDLayout struct {
	Volumes []RAIDVolume `json:"volumes"`
}

// RAIDVolume is one volume.
type RAIDVolume struct {
	Name       string   `json:"name,omitempty"`
	Level      string   `json:"level"`                // "0" "1" "5" "6" "10" "50" "60" "jbod"
	Drives     []string `json:"drives,omitempty"`     // ids or serials; empty: the driver chooses
	SizeBytes  int64    `json:"sizeBytes,omitempty"`  // 0: all there is
	Controller string   `json:"controller,omitempty"` // id
	Bootable   bool     `json:"bootable,omitempty"`
}

func raidKind() Kind {
	return Kind{Name: "raid", Operations: []Operation{
		op1("applyLayout", "layout", RAID.ApplyLayout),
		op0("clear", done0(RAID.Clear)),
		optional(op0("getLayout", RAIDReader.GetLayout)),
	}}
}
