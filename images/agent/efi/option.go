package efi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf16"
)

// Attributes of a load option that matter here.
const (
	attrActive       = 0x1
	attrCategory     = 0x1f00
	attrCategoryApp  = 0x100
	loadOptionHeader = 6 // attributes and length of the device path
)

// Limits of what is read, in bytes and numbers.
const (
	maxOption  = 64 << 10
	maxEntries = 256
	maxText    = 128
	maxPath    = 512
)

var errOption = errors.New("not a load option")

// Option is an EFI_LOAD_OPTION. Marshal gives the bytes that Parse took.
type Option struct {
	Attributes  uint32
	Description []uint16 // without its terminator; may hold what is no text
	Path        []byte   // the packed device paths; the first says what is started
	Data        []byte   // optional data
}

// ParseOption reads a load option.
func ParseOption(b []byte) (Option, error) {
	if len(b) < loadOptionHeader || len(b) > maxOption {
		return Option{}, errOption
	}
	o := Option{Attributes: binary.LittleEndian.Uint32(b)}
	length := int(binary.LittleEndian.Uint16(b[4:]))
	b = b[loadOptionHeader:]
	end := -1
	for i := 0; i+1 < len(b); i += 2 {
		c := binary.LittleEndian.Uint16(b[i:])
		if c == 0 {
			end = i + 2
			break
		}
		o.Description = append(o.Description, c)
	}
	if end < 0 || len(b)-end < length {
		return Option{}, errOption
	}
	o.Path, o.Data = bytes.Clone(b[end:end+length]), bytes.Clone(b[end+length:])
	return o, nil
}

// Marshal gives the variable's bytes.
func (o Option) Marshal() []byte {
	b := binary.LittleEndian.AppendUint32(nil, o.Attributes)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(o.Path)))
	for _, c := range o.Description {
		b = binary.LittleEndian.AppendUint16(b, c)
	}
	b = append(b, 0, 0)
	return append(append(b, o.Path...), o.Data...)
}

// Name is the description as text.
func (o Option) Name() string { return clean(string(utf16.Decode(o.Description)), maxText) }

// Active reports whether firmware tries the entry by itself.
func (o Option) Active() bool { return o.Attributes&attrActive != 0 }

// app reports whether the entry is an application of firmware, which is no part of the boot order though it may be listed.
func (o Option) app() bool { return o.Attributes&attrCategory == attrCategoryApp }
