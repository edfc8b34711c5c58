package driver

// VirtualMedia puts an ISO image into a virtual drive.
//
//	insert(iso)  -> {}   iso: an http or https URL the BMC can fetch
//	eject()      -> {}   done at once when nothing is inserted
//
// Both return once reading back shows the drive so.
type VirtualMedia interface {
	Insert(ctx *Context, iso string) error
	Eject(ctx *Context) error
}

func virtualMediaKind() Kind {
	return Kind{Name: "virtual-media", Operations: []Operation{
		op1("insert", "iso", done1(VirtualMedia.Insert)),
		op0("eject", done0(VirtualMedia.Eject)),
	}}
}
