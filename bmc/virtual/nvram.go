package virtual

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"unicode/utf16"
)

// OVMF keeps its variables in a firmware volume (PI 1.7, volume 3, section 3.2.1) whose data is a variable store of edk2
// (MdeModulePkg/Include/Guid/VariableFormat.h): a header, then the variables one after another on 4-byte boundaries, then
// 0xff up to the end.
const (
	volumeHeaderLength = 48 // offset of a uint16
	storeHeader        = 28 // bytes: GUID, uint32 size of the store with this header, format, state, reserved
	variableHeader     = 60 // bytes of AUTHENTICATED_VARIABLE_HEADER
	variableStart      = 0x55aa

	variableAdded   = 0x3f
	variableReplace = 0x3e // being replaced: holds while there is no other
	variableDeleted = 0xfd // mask

	variableLasting = 7 // attributes of boot variables: kept, and there for boot and run time
)

var (
	authenticatedStore = []byte("\x78\x2c\xf3\xaa\x7b\x94\x9a\x43\xa1\x80\x2e\x14\x4e\xc3\x77\x92") // gEfiAuthenticatedVariableGuid
	globalVariable     = []byte("\x61\xdf\xe4\x8b\xca\x93\xd2\x11\xaa\x0d\x00\xe0\x98\x03\x2b\x8c") // EFI_GLOBAL_VARIABLE
)

var errNVRAM = errors.New("the file holds no variables of UEFI firmware")

// nvram is the variable store of a machine's firmware, which does not run.
type nvram struct {
	raw   []byte            // the store, without its header; part of the file's bytes
	boot  map[string][]byte // what the variables of UEFI itself hold
	at    map[string]int    // where their headers are
	spare int               // where the next variable goes
}

// parseNVRAM finds the variable store in a file's bytes, which it keeps and changes.
func parseNVRAM(file []byte) (*nvram, error) {
	if len(file) < volumeHeaderLength+2 {
		return nil, errNVRAM
	}
	at := int(binary.LittleEndian.Uint16(file[volumeHeaderLength:]))
	if len(file) < at+storeHeader || !bytes.Equal(file[at:at+16], authenticatedStore) {
		return nil, errNVRAM
	}
	size := int64(binary.LittleEndian.Uint32(file[at+16:]))
	if size < storeHeader || size > int64(len(file)-at) {
		return nil, errNVRAM
	}
	n := &nvram{raw: file[at+storeHeader : at+int(size)], boot: map[string][]byte{}, at: map[string]int{}}
	for n.spare+variableHeader <= len(n.raw) && binary.LittleEndian.Uint16(n.raw[n.spare:]) == variableStart {
		next, err := n.variable(n.spare)
		if err != nil {
			return nil, err
		}
		n.spare = next
	}
	return n, nil
}

// variable reads the variable whose header is at an offset, and gives the offset of the next.
func (n *nvram) variable(at int) (int, error) {
	h := n.raw[at:]
	name, data := int64(binary.LittleEndian.Uint32(h[36:])), int64(binary.LittleEndian.Uint32(h[40:]))
	end := variableHeader + name + data
	if name%2 != 0 || end > int64(len(h)) {
		return 0, errNVRAM
	}
	state := h[2]
	if bytes.Equal(h[44:60], globalVariable) && (state == variableAdded || state == variableReplace) {
		key := utf16Text(h[variableHeader : variableHeader+name])
		if _, there := n.boot[key]; !there || state == variableAdded {
			n.boot[key], n.at[key] = h[variableHeader+name:end], at
		}
	}
	return min(align4(at+int(end)), len(n.raw)), nil
}

func align4(n int) int { return (n + 3) &^ 3 }

func utf16Text(b []byte) string {
	var u []uint16
	for i := 0; i+1 < len(b) && (b[i] != 0 || b[i+1] != 0); i += 2 {
		u = append(u, binary.LittleEndian.Uint16(b[i:]))
	}
	return string(utf16.Decode(u))
}

// set replaces a variable.
func (n *nvram) set(name string, data []byte) error {
	text := utf16.Encode([]rune(name + "\x00"))
	v := make([]byte, variableHeader, variableHeader+2*len(text)+len(data))
	binary.LittleEndian.PutUint16(v, variableStart)
	v[2] = variableAdded
	binary.LittleEndian.PutUint32(v[4:], variableLasting)
	binary.LittleEndian.PutUint32(v[36:], uint32(2*len(text)))
	binary.LittleEndian.PutUint32(v[40:], uint32(len(data)))
	copy(v[44:], globalVariable)
	for _, c := range text {
		v = binary.LittleEndian.AppendUint16(v, c)
	}
	v = append(v, data...)
	if n.spare+len(v) > len(n.raw) {
		return fmt.Errorf("the firmware's variables leave no room for %s", name)
	}
	if was, there := n.at[name]; there {
		n.raw[was+2] &= variableDeleted
	}
	copy(n.raw[n.spare:], v)
	n.boot[name], n.at[name] = data, n.spare
	n.spare = min(align4(n.spare+len(v)), len(n.raw))
	return nil
}

// first finds the first option in the boot order that starts a kind of device: a network port, by the protocol asked for, or
// a disk.
func (n *nvram) first(t Target) (option []byte, ok bool) {
	order := n.boot["BootOrder"]
	for i := 0; i+1 < len(order); i += 2 {
		id := order[i : i+2]
		if targetOf(n.boot[fmt.Sprintf("Boot%04X", binary.LittleEndian.Uint16(id))]) == t {
			return slices.Clone(id), true
		}
	}
	return nil, false
}

// Nodes of a device path, as type and subtype (UEFI 2.10, section 10.3).
const (
	pathEnd    = 0x7f
	pathMAC    = 0x030b
	pathURI    = 0x0318
	pathFvFile = 0x0406
	pathFv     = 0x0407
)

// targetOf tells which kind of device an EFI_LOAD_OPTION starts; NoTarget for firmware's own programs and what is no option.
func targetOf(option []byte) Target {
	if len(option) < 6 {
		return NoTarget
	}
	b, t := option[6:], Hdd
	for len(b) >= 2 && (b[0] != 0 || b[1] != 0) {
		b = b[2:]
	}
	for b = b[min(2, len(b)):]; len(b) >= 4 && b[0] != pathEnd; {
		switch binary.BigEndian.Uint16(b) {
		case pathFv, pathFvFile:
			return NoTarget
		case pathMAC:
			t = Pxe
		case pathURI:
			t = UefiHTTP
		}
		size := int(binary.LittleEndian.Uint16(b[2:]))
		if size < 4 || size > len(b) {
			return NoTarget
		}
		b = b[size:]
	}
	return t
}

// bootNext has the firmware whose variables are in a file try the first option for a target once, before all others, and
// leaves its order alone: what a BMC's override is to a real machine. It reports false when the firmware has no such option,
// which it makes at its first start.
func bootNext(path string, t Target) (bool, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	n, err := parseNVRAM(file)
	if err != nil {
		return false, err
	}
	option, ok := n.first(t)
	if !ok {
		return false, nil
	}
	if err := n.set("BootNext", option); err != nil {
		return false, err
	}
	tmp := path + ".new"
	return true, errors.Join(os.WriteFile(tmp, file, 0o600), os.Rename(tmp, path))
}
