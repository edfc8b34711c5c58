package commission

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// soon is how long a disk may take to say how it is.
const soon = 20 * time.Second

// NVM Express Base Specification 2.0, 5.16.1.3: SMART / Health Information (log 02h).
const (
	nvmeGetLog    = 0x02
	nvmeHealthLog = 0x02
	nvmeHealthLen = 512
	nvmeEverybody = 0xffffffff // namespaces
)

// nvmeWarnings are the bits of Critical Warning.
var nvmeWarnings = []string{
	"its spare blocks have run low", "it is too hot or too cold", "its reliability is degraded, by errors or because it is worn out",
	"it has become read-only", "the backup of its volatile memory has failed", "its persistent memory has become unreliable",
}

func nvmeHealth(p passthrough.NVMe) (Health, error) {
	b := make([]byte, nvmeHealthLen)
	err := p.Do(passthrough.Admin{Opcode: nvmeGetLog, NSID: nvmeEverybody, Data: b, CDW: [6]uint32{nvmeHealthLog | (nvmeHealthLen/4-1)<<16}, Timeout: soon})
	if err != nil {
		return Health{}, fmt.Errorf("reading its SMART log: %w", err)
	}
	return parseNVMe(b)
}

// parseNVMe reads the log page.
func parseNVMe(b []byte) (Health, error) {
	h := Health{Protocol: "NVMe"}
	if len(b) < nvmeHealthLen {
		return h, fmt.Errorf("its SMART log has %d bytes", len(b))
	}
	for bit, text := range nvmeWarnings {
		if b[0]&(1<<bit) != 0 {
			h.fault("%s", text)
		}
	}
	spare, least := b[3], b[4] // percent; some drives say 255 for a least that they do not know
	if least <= 100 && spare < least && b[0]&1 == 0 {
		h.fault("%s", nvmeWarnings[0])
	}
	if kelvin := binary.LittleEndian.Uint16(b[1:]); kelvin > 0 {
		h.value("temperature", "°C", float64(kelvin)-273, "maxTemperature")
	}
	h.value("spare blocks", "%", float64(spare), "")
	h.value("life used up", "%", float64(b[5]), "maxUsed")
	h.value("lost data", "errors", wide(b[160:]), "maxMediaErrors")
	h.value("powered on", "h", wide(b[128:]), "")
	h.value("power cut without warning", "times", wide(b[144:]), "")
	h.value("written", "TB", wide(b[48:])*512000/1e12, "")
	return h, nil
}

// wide reads a counter of 128 bits, which a float holds well enough for people.
func wide(b []byte) float64 {
	return float64(binary.LittleEndian.Uint64(b)) + float64(binary.LittleEndian.Uint64(b[8:]))*(1<<64)
}

// SCSI Primary Commands 5.
const (
	cdbRequestSense = 0x03
	cdbInquiry      = 0x12
	cdbLogSense     = 0x4d
	logExceptions   = 0x2f // Informational Exceptions
	ascPredicted    = 0x5d // FAILURE PREDICTION THRESHOLD EXCEEDED
	ascWarning      = 0x0b
)

// scsiHealth asks a disk behind the SCSI layer: an ATA disk is known by its vendor field (SAT-4, 8.1).
func scsiHealth(p passthrough.SCSI) (Health, error) {
	inquiry := make([]byte, 96)
	if _, err := p.Do([]byte{cdbInquiry, 0, 0, 0, byte(len(inquiry)), 0}, passthrough.FromDisk, inquiry, soon); err != nil {
		return Health{}, fmt.Errorf("asking what it is: %w", err)
	}
	if strings.TrimSpace(string(inquiry[8:16])) == "ATA" {
		return ataHealth(passthrough.ATA{Port: p})
	}
	b := make([]byte, 64)
	_, err := p.Do([]byte{cdbLogSense, 0, 1<<6 | logExceptions, 0, 0, 0, 0, 0, byte(len(b)), 0}, passthrough.FromDisk, b, soon)
	var check passthrough.CheckCondition
	if errors.As(err, &check) && check.Key == 5 { // ILLEGAL REQUEST: it has no such log
		return scsiSense(p)
	}
	if err != nil {
		return Health{}, fmt.Errorf("reading its log of exceptions: %w", err)
	}
	return parseExceptions(b)
}

// scsiSense is for disks without the log: they may still threaten to fail in their sense data. Silence says nothing.
func scsiSense(p passthrough.SCSI) (Health, error) {
	b := make([]byte, 252)
	if _, err := p.Do([]byte{cdbRequestSense, 0, 0, 0, byte(len(b)), 0}, passthrough.FromDisk, b, soon); err != nil {
		return Health{}, fmt.Errorf("asking for sense data: %w", err)
	}
	if c, ok := passthrough.SenseOf(b); ok && c.ASC == ascPredicted {
		h := Health{Protocol: "SCSI"}
		h.fault("it predicts its failure (%02x/%02x)", c.ASC, c.ASCQ)
		return h, nil
	}
	return Health{}, silent{"this SCSI disk keeps no log of its health; if it is a RAID controller's volume, ask the controller"}
}

// parseExceptions reads the log page of informational exceptions (SPC-5, 7.3.9).
func parseExceptions(b []byte) (Health, error) {
	h := Health{Protocol: "SCSI"}
	if len(b) < 4 || b[0]&0x3f != logExceptions {
		return h, errors.New("its log of exceptions cannot be read")
	}
	end := min(len(b), 4+int(binary.BigEndian.Uint16(b[2:])))
	for at := 4; at+6 <= end; at += 4 + int(b[at+3]) {
		if binary.BigEndian.Uint16(b[at:]) != 0 || b[at+3] < 2 {
			continue
		}
		switch asc, ascq := b[at+4], b[at+5]; asc {
		case ascPredicted:
			h.fault("it predicts its failure (%02x/%02x)", asc, ascq)
		case ascWarning:
			h.fault("it warns (%02x/%02x)", asc, ascq)
		}
		if at+7 <= end && b[at+3] >= 3 && b[at+6] > 0 && b[at+6] < 0xff {
			h.value("temperature", "°C", float64(b[at+6]), "maxTemperature")
		}
		return h, nil
	}
	return h, errors.New("its log of exceptions holds none of its parameters")
}

// ATA Command Set 4: SMART.
const (
	ataSMART      = 0xb0
	smartReadData = 0xd0
	smartStatus   = 0xda
	smartKey      = 0xc24f00 // LBA of every SMART command
	smartExceeded = 0x2cf400 // LBA that a failing disk answers
	setSMART      = 0        // bit of the words that say which command sets a disk has, and which are on
)

func ataHealth(a passthrough.ATA) (Health, error) {
	h := Health{Protocol: "ATA"}
	id, err := a.Identify(soon)
	switch {
	case errors.Is(err, passthrough.ErrIdentity):
		return h, silent{err.Error()}
	case err != nil:
		return h, fmt.Errorf("asking what it can: %w", err)
	}
	if has, told := id.Supports(setSMART); !has || !told {
		return h, silent{"this ATA disk has no SMART"}
	}
	if on, told := id.Enabled(setSMART); !on || !told {
		return h, silent{"SMART is turned off on this disk"}
	}
	r, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Features: smartStatus, LBA: smartKey, Command: ataSMART, Timeout: soon})
	switch {
	case refused(err), err == nil && r.LBA&0xffff00 != smartExceeded && r.LBA&0xffff00 != smartKey:
		return h, silent{"its controller does not pass on what SMART says"}
	case err != nil:
		return h, fmt.Errorf("asking for its SMART status: %w", err)
	case r.LBA&0xffff00 == smartExceeded:
		h.fault("it predicts its failure (SMART threshold exceeded)")
	}
	data := make([]byte, 512)
	if _, err := a.Do(passthrough.ATACommand{Protocol: passthrough.PIOIn, Features: smartReadData, LBA: smartKey, Command: ataSMART, Data: data, Timeout: soon}); err == nil {
		h.attributes(data) // vendors' own values: good to know, and nothing that everybody has
	}
	return h, nil
}

// refused reports that what stands before a disk does not know a command, or a field of it: no word of the disk itself.
func refused(err error) bool {
	var c passthrough.CheckCondition
	return errors.As(err, &c) && c.Key == 5 && (c.ASC == 0x20 || c.ASC == 0x24)
}

// ataAttributes are those that nearly all vendors count alike.
var ataAttributes = map[byte]struct{ name, unit, limit string }{
	5: {"replaced sectors", "sectors", "maxBadSectors"}, 9: {"powered on", "h", ""},
	190: {"temperature", "°C", "maxTemperature"}, 194: {"temperature", "°C", "maxTemperature"},
	197: {"unreadable sectors", "sectors", "maxBadSectors"}, 198: {"uncorrectable sectors", "sectors", "maxBadSectors"},
}

// attributes reads the table of the SMART data: 30 rows of 12 bytes after the version. Data with a wrong sum hold nothing.
func (h *Health) attributes(b []byte) {
	sum := byte(0)
	for _, c := range b {
		sum += c
	}
	if len(b) != 512 || sum != 0 {
		return
	}
	seen := map[byte]bool{190: hasRow(b, 194)} // those with both keep the disk's own temperature in 194
	for at := 2; at+12 <= 362; at += 12 {
		a, known := ataAttributes[b[at]]
		if !known || seen[b[at]] {
			continue
		}
		seen[b[at]] = true
		raw := uint64(binary.LittleEndian.Uint32(b[at+5:])) | uint64(binary.LittleEndian.Uint16(b[at+9:]))<<32
		switch b[at] {
		case 5, 197, 198:
			if raw > 0xffffffff { // more than disks have: other values are kept above
				raw &= 0xffff
			}
		case 9:
			raw &= 0xffffffff // some keep minutes above
		case 190, 194:
			raw &= 0xff // some keep the extremes above
		}
		h.value(a.name, a.unit, float64(raw), a.limit)
	}
}

// hasRow reports whether the table has a row for an attribute.
func hasRow(b []byte, id byte) bool {
	for at := 2; at+12 <= 362; at += 12 {
		if b[at] == id {
			return true
		}
	}
	return false
}
