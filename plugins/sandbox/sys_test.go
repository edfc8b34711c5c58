package sandbox

import "unsafe"

// uintptrOf gives the address for a system call that writes an int32 there.
func uintptrOf(p *int) uintptr { return uintptr(unsafe.Pointer(p)) }
