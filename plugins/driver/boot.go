package driver

// Boot prepares what a machine is given when it boots from the network or from virtual media.
//
//	prepareRamdisk(spec)   -> {}   the next boot runs the ramdisk
//	prepareInstance(boot)  -> {}   the next boot runs what is installed
//	cleanUp()              -> {}   nothing is offered any more
type Boot interface {
	PrepareRamdisk(ctx *Context, spec RamdiskSpec) error
	PrepareInstance(ctx *Context, boot InstanceBoot) error
	CleanUp(ctx *Context) error
}

// RamdiskSpec is the ramdisk to boot.
type RamdiskSpec struct {
	Machine    string `json:"machine"`              // id
	Firmware   string `json:"firmware,omitempty"`   // "bios", "uefi", or "" unknown
	KernelArgs string `json:"kernelArgs,omitempty"` // appended to the kernel line
	BootToken  string `json:"bootToken,omitempty"`  // reference to it, never the value
}

// InstanceBoot is how an installed system boots.
type InstanceBoot struct {
	Machine  string `json:"machine"`
	Firmware string `json:"firmware,omitempty"`
	Device   string `json:"device,omitempty"` // "disk" unless told
}

func bootKind() Kind {
	return Kind{Name: "boot", Operations: []Operation{
		op1("prepareRamdisk", "spec", done1(Boot.PrepareRamdisk)),
		op1("prepareInstance", "boot", done1(Boot.PrepareInstance)),
		op0("cleanUp", done0(Boot.CleanUp)),
	}}
}
