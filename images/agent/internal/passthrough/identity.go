package passthrough

import (
	"encoding/binary"
	"errors"
	"time"
)

// identifyDevice is the ATA command IDENTIFY DEVICE.
const identifyDevice = 0xec

// Identity is the 256 words of IDENTIFY DEVICE (ACS-4, 9.12).
type Identity [256]uint16

// Identify asks a disk what it is.
func (a ATA) Identify(timeout time.Duration) (Identity, error) {
	b := make([]byte, 512)
	if _, err := a.Do(ATACommand{Protocol: PIOIn, Command: identifyDevice, Data: b, Timeout: timeout}); err != nil {
		return Identity{}, err
	}
	return ParseIdentity(b)
}

// ErrIdentity is data of IDENTIFY DEVICE in which nothing can be believed.
var ErrIdentity = errors.New("what came back for IDENTIFY DEVICE is not an ATA disk's")

// ParseIdentity reads 512 bytes. Data that no ATA disk sends, all the same (a bridge that made them up) or with a wrong sum,
// are an error: each bit of them may allow something destructive.
func ParseIdentity(b []byte) (Identity, error) {
	var words Identity
	if len(b) != 2*len(words) {
		return words, ErrIdentity
	}
	same, sum := true, byte(0)
	for i := range words {
		words[i] = binary.LittleEndian.Uint16(b[2*i:])
		same = same && words[i] == words[0]
		sum += b[2*i] + b[2*i+1]
	}
	const notATA, signed, signature = 1 << 15, 0xff, 0xa5
	if same || words[0]&notATA != 0 || words[255]&signed == signature && sum != 0 {
		return Identity{}, ErrIdentity
	}
	return words, nil
}

// valid reports whether bits 15:14 of a word are 01b, by which it says that it holds something.
func valid(word uint16) bool { return word>>14 == 1 }

// Supports reports a bit of word 82, the command sets that the disk has; told is false for a disk too old to say.
func (w *Identity) Supports(bit int) (has, told bool) { return w[82]&(1<<bit) != 0, valid(w[83]) }

// Enabled reports a bit of word 85, the command sets that are on; told is false for a disk too old to say.
func (w *Identity) Enabled(bit int) (on, told bool) { return w[85]&(1<<bit) != 0, valid(w[87]) }

// Bytes is the disk's capacity.
func (w *Identity) Bytes() int64 {
	sectors := int64(w[60]) | int64(w[61])<<16
	if valid(w[83]) && w[83]&(1<<10) != 0 { // 48-bit addresses
		sectors = int64(w[100]) | int64(w[101])<<16 | int64(w[102])<<32 | int64(w[103]&0x7f)<<48
	}
	size := int64(512)
	if valid(w[106]) && w[106]&(1<<12) != 0 { // long logical sectors, counted in words
		size = 2 * (int64(w[117]) | int64(w[118])<<16)
	}
	const most = 1 << 60 // more has no disk, and a product of nonsense must not wrap
	if sectors < 0 || size <= 0 || sectors > most/size {
		return 0
	}
	return sectors * size
}
