package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// NVM Express Base Specification 2.0: opcodes of admin commands and what Identify and the sanitize log hold.
const (
	opGetLogPage = 0x02
	opIdentify   = 0x06
	opFormat     = 0x80
	opSanitize   = 0x84

	cnsNamespace  = 0    // Identify: the namespace
	cnsController = 1    // the controller
	cnsActive     = 2    // the list of active namespaces
	cnsAllocated  = 0x10 // the list of those that exist, attached to a controller or not

	oacsFormat, oacsNamespaces = 1 << 1, 1 << 3 // Optional Admin Command Support, bytes 256 and 257 of Identify Controller

	version11 = 0x10100 // of the specification, bytes 80 to 83; earlier drives have no list of namespaces

	fnaFormatAll   = 1 << 0 // Format NVM Attributes, byte 524: a format changes every namespace
	fnaEraseAll    = 1 << 1 // an erasing format erases every namespace
	fnaCrypto      = 1 << 2 // cryptographic erase is supported
	fnaNoBroadcast = 1 << 3 // a format is not taken for all namespaces at once

	sanCrypto, sanBlock, sanOverwrite = 1 << 0, 1 << 1, 1 << 2 // SANICAP, bytes 328 to 331

	sanitizeExitFailure, sanitizeBlock, sanitizeOverwrite, sanitizeCrypto = 1, 2, 3, 4 // SANACT of Sanitize, bits 2:0 of dword 10
	sanitizeAction                                                        = 7
	sanitizeOnce                                                          = 1 << 4 // OWPASS, bits 7:4: passes of an overwrite; the pattern is dword 11

	logSanitize = 0x81

	allNamespaces = 0xffffffff
)

// nvmeLadder reads what a namespace's controller can do.
func nvmeLadder(p passthrough.NVMe, sleep clock) Ladder {
	var l Ladder
	n := nvme{port: p, sleep: sleep}
	if err := n.identify(); err != nil {
		l.note("the NVMe controller does not say what it can do: %v", err)
		return l
	}
	l.Among = n.namespaces
	add := l.add
	sanicap := binary.LittleEndian.Uint32(n.controller[328:])
	switch {
	case sanicap&(sanCrypto|sanBlock|sanOverwrite) == 0:
		l.note("the controller has no sanitize")
	case n.namespaces > 1:
		add = l.share
		l.note("sanitize would erase all %d namespaces of the controller, so it is not used for one", n.namespaces)
	}
	if sanicap&sanCrypto != 0 {
		add("nvme-sanitize-crypto", n.sanitize(sanitizeCrypto))
	}
	if sanicap&sanBlock != 0 {
		add("nvme-sanitize-block", n.sanitize(sanitizeBlock))
	}
	n.formatRungs(&l)
	if sanicap&sanOverwrite != 0 { // the slowest, and flash wears by it
		add("nvme-sanitize-overwrite", n.sanitize(sanitizeOverwrite|sanitizeOnce))
	}
	return l
}

// formatRungs adds Format NVM, or says why it is not used. A controller whose formats reach every namespace is told so where it
// takes that: some refuse the number of one. Not where it erases all and formats one, for the others may be formatted otherwise.
func (n *nvme) formatRungs(l *Ladder) {
	fna := n.controller[524]
	reaches := fna&(fnaFormatAll|fnaEraseAll) != 0
	nsid := n.nsid
	if reaches && fna&fnaNoBroadcast == 0 && (fna&fnaFormatAll != 0 || n.namespaces == 1) {
		nsid = allNamespaces
	}
	if binary.LittleEndian.Uint16(n.controller[256:])&oacsFormat == 0 {
		l.note("the controller cannot format")
		return
	}
	add := l.add
	if reaches && n.namespaces > 1 {
		add = l.share
		l.note("a format would erase all %d namespaces of the controller, so it is not used for one", n.namespaces)
	}
	if fna&fnaCrypto != 0 {
		add("nvme-format-crypto", n.format(nsid, 2))
	}
	add("nvme-format-user-data", n.format(nsid, 1))
}

type nvme struct {
	port       passthrough.NVMe
	sleep      clock
	nsid       uint32
	namespaces int // of the drive
	controller []byte
	lbaf       uint32 // the namespace's LBA format, metadata and protection as Format NVM takes them in dword 10
}

func (n *nvme) identify() error {
	var err error
	if n.nsid, err = n.port.Namespace(); err != nil {
		return err
	}
	page := func(nsid, cns uint32) ([]byte, error) {
		b := make([]byte, 4096)
		return b, n.port.Do(passthrough.Admin{Opcode: opIdentify, NSID: nsid, Data: b, CDW: [6]uint32{cns}, Timeout: 10 * time.Second})
	}
	if n.controller, err = page(0, cnsController); err != nil {
		return err
	}
	if n.namespaces, err = n.count(page); err != nil {
		return err
	}
	if n.namespaces == 0 {
		return errors.New("it lists no namespace")
	}
	ns, err := page(n.nsid, cnsNamespace)
	if err != nil {
		return err
	}
	flbas, dps := uint32(ns[26]), uint32(ns[29])
	n.lbaf = flbas&0xf | (flbas>>4&1)<<4 | (dps&7)<<5 | (dps>>3&1)<<8 | (flbas>>5&3)<<12
	return nil
}

// count gives how many namespaces a command for the whole drive would change.
func (n *nvme) count(page func(nsid, cns uint32) ([]byte, error)) (int, error) {
	if binary.LittleEndian.Uint32(n.controller[80:]) < version11 {
		return int(binary.LittleEndian.Uint32(n.controller[516:])), nil
	}
	lists := []uint32{cnsActive}
	if binary.LittleEndian.Uint16(n.controller[256:])&oacsNamespaces != 0 {
		lists = append(lists, cnsAllocated)
	}
	most := 0
	for _, cns := range lists {
		list, err := page(0, cns)
		if err != nil {
			return 0, err
		}
		found := 0
		for found < len(list)/4 && binary.LittleEndian.Uint32(list[4*found:]) != 0 {
			found++
		}
		most = max(most, found)
	}
	return most, nil
}

// format is Format NVM with a secure erase setting: 1 user data, 2 cryptographic. The LBA format stays what it is.
func (n *nvme) format(nsid, ses uint32) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		stop := n.sleep.meanwhile(ctx, func(time.Duration) { p(0, "the controller does not say how far it is") })
		defer stop()
		// The command cannot be taken back; its time is the drive's.
		return n.port.Do(passthrough.Admin{Opcode: opFormat, NSID: nsid, CDW: [6]uint32{n.lbaf | ses<<9}, Timeout: 2 * time.Hour})
	}
}

// sanitize starts a sanitize with a dword 10 and waits for its end. The drive goes on with it over resets and power cuts.
func (n *nvme) sanitize(order uint32) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		log, err := n.sanitizeLog()
		if err != nil {
			return err
		}
		if log.state == sanitizeRunning { // an earlier one, which a power cut does not end
			err := n.follow(ctx, p, log.action)
			if ctx.Err() != nil || errors.Is(err, ErrUnsure) {
				return err
			}
		}
		if log.state == sanitizeFailed {
			n.leaveFailure()
		}
		if err := n.port.Do(passthrough.Admin{Opcode: opSanitize, CDW: [6]uint32{order}, Timeout: time.Minute}); err != nil {
			return err
		}
		return n.follow(ctx, p, order&sanitizeAction)
	}
}

// leaveFailure ends the state after a failed sanitize, in which the drive writes nothing. A drive that was not in it refuses.
func (n *nvme) leaveFailure() {
	_ = n.port.Do(passthrough.Admin{Opcode: opSanitize, CDW: [6]uint32{sanitizeExitFailure}, Timeout: time.Minute})
}

// States of the sanitize status log (SSTAT, bits 2:0).
const (
	sanitizeNever = iota
	sanitizeDone
	sanitizeRunning
	sanitizeFailed
	sanitizeDoneKept // without deallocating
)

// sanitizeLog is what a drive remembers of its latest sanitize.
type sanitizeLog struct {
	state    int
	done     float64
	action   uint32        // SANACT of the command that it is about
	estimate time.Duration // for such an action; 0: not said
}

func (n *nvme) sanitizeLog() (sanitizeLog, error) {
	b := make([]byte, 512)
	err := n.port.Do(passthrough.Admin{Opcode: opGetLogPage, NSID: allNamespaces, Data: b, CDW: [6]uint32{logSanitize | uint32(len(b)/4-1)<<16}, Timeout: 10 * time.Second})
	return parseSanitizeLog(b), err
}

// parseSanitizeLog reads the first bytes of the log page (NVM Express Base Specification 2.0, 5.16.1.25).
func parseSanitizeLog(b []byte) sanitizeLog {
	l := sanitizeLog{state: int(b[2] & 7), done: float64(binary.LittleEndian.Uint16(b)) / 65536, action: uint32(b[4] & sanitizeAction)}
	const unknown = 0xffffffff
	at := map[uint32]int{sanitizeOverwrite: 8, sanitizeBlock: 12, sanitizeCrypto: 16}[l.action]
	if seconds := binary.LittleEndian.Uint32(b[at:]); at > 0 && seconds != unknown {
		l.estimate = time.Duration(seconds) * time.Second
	}
	return l
}

// follow waits for the end of a sanitize by its log. A log about another action is an old one.
func (n *nvme) follow(ctx context.Context, p Progress, action uint32) error {
	var still standstill
	for {
		log, err := n.sanitizeLog()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrUnsure, err)
		case log.action != action:
			return fmt.Errorf("%w: its sanitize log is about another one", ErrUnsure)
		case log.state == sanitizeDone || log.state == sanitizeDoneKept:
			p(1, "")
			return nil
		case log.state == sanitizeFailed:
			n.leaveFailure() // so that the next method can write
			return errors.New("the drive's sanitize log says that it failed")
		case log.state != sanitizeRunning:
			return ErrUnsure
		}
		p(log.done, "as the drive's sanitize log says")
		still.limit = max(patience, 2*log.estimate)
		if err := still.at(log.done); err != nil {
			return err
		}
		if err := n.sleep(ctx, poll); err != nil {
			return err
		}
	}
}
