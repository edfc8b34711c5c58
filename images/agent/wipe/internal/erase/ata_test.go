package erase

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
)

// words makes the data of IDENTIFY DEVICE.
func words(w map[int]uint16) string {
	b := make([]byte, 512)
	b[0] = 0x40
	for i, v := range w {
		b[2*i], b[2*i+1] = byte(v), byte(v>>8)
	}
	return hex.EncodeToString(b)
}

// left is sense data that carries a command's status, count and low LBA.
func left(status byte, count uint16, lba uint16) string {
	return fmt.Sprintf("7201001d 0000000e 090c0100 %04x 00%02x 00%02x 0000 40%02x", count, lba&0xff, lba>>8, status)
}

const good = 0x50 // DRDY and DSC

var sendIdentify = pass(passthrough.PIOIn, 0x0e, 1, 0xec)

// pass is the CDB of a command without LBA.
func pass(proto, flags, blocks, command byte) string {
	return fmt.Sprintf("85%02x%02x000000%02x00000000000040%02x00", proto<<1, flags, blocks, command)
}

func security(command byte) string { return pass(passthrough.PIOOut, 0x06, 1, command) }

// askSanitize is SANITIZE STATUS EXT, which is asked before sanitize is offered.
const askSanitize = "85" + "07" + "20" + "0000" + "0000" + "000000000000" + "40" + "b4" + "00"

func ataTrace(t *testing.T, id map[int]uint16, rest ...step) *replay.Trace {
	steps := []step{{askInquiry, inquiryATA, "", nil}, {sendIdentify, words(id), "", nil}}
	if id[identifySecurity]&securityLocked != 0 {
		steps, rest = append(steps, rest[0]), rest[1:]
	}
	if id[identifySanitize]&(sanitizeHasScramble|sanitizeHasBlock|sanitizeHasOverwrite) != 0 {
		steps = append(steps, step{askSanitize, "", left(good, 1<<15, 0xffff), nil})
	}
	return play(t, append(steps, rest...)...)
}

func TestATALadder(t *testing.T) {
	for name, c := range map[string]struct {
		id    map[int]uint16
		rest  []step
		names []string
		note  string
	}{
		"all": {map[int]uint16{59: 0xf000, 128: securitySupported | securityEnhanced, 217: 7200}, nil,
			[]string{"ata-sanitize-crypto", "ata-sanitize-block", "ata-security-erase-enhanced", "ata-sanitize-overwrite", "ata-security-erase"}, ""},
		"all, of flash": {map[int]uint16{59: 0xf000, 128: securitySupported | securityEnhanced, 217: 1}, nil,
			[]string{"ata-sanitize-crypto", "ata-sanitize-block", "ata-security-erase-enhanced", "ata-security-erase", "ata-sanitize-overwrite"}, ""},
		"frozen, of platters": {map[int]uint16{59: 0x5000, 128: securitySupported | securityFrozen}, nil, []string{"ata-sanitize-overwrite"}, "froze"},
		"old":                 {map[int]uint16{128: securitySupported}, nil, []string{"ata-security-erase"}, ""},
		"none":                {map[int]uint16{}, nil, nil, "no ATA security"},
		"frozen":              {map[int]uint16{59: sanitizeSupported | sanitizeHasBlock, 128: securitySupported | securityFrozen}, nil, []string{"ata-sanitize-block"}, "froze"},
		"locked by another": {map[int]uint16{128: securitySupported | securityEnabled | securityLocked},
			[]step{{security(ataUnlock), "", left(0x51, 0, 0), nil}}, nil, "not ours"},
		"locked by us": {map[int]uint16{128: securitySupported | securityEnabled | securityLocked},
			[]step{{security(ataUnlock), "0000" + hex.EncodeToString([]byte(ataPassword)), "", nil}}, []string{"ata-security-erase"}, ""},
		"locked by us, of platters": {map[int]uint16{59: 0x5000, 128: securitySupported | securityEnabled | securityLocked},
			[]step{{security(ataUnlock), "", "", nil}}, []string{"ata-sanitize-overwrite", "ata-security-erase"}, ""},
	} {
		p := ataTrace(t, c.id, c.rest...)
		l := scsiLadder(p, atOnce)
		if !slices.Equal(names(l), c.names) || !strings.Contains(strings.Join(l.Notes, "\n"), c.note) {
			t.Errorf("%s: %v, notes %q", name, names(l), l.Notes)
		}
		p.Over()
	}
}

func TestATASanitize(t *testing.T) {
	crypto := "85" + "07" + "20" + "0011" + "0000" + "43" + "70" + "00" + "79" + "00" + "72" + "40" + "b4" + "00"
	for name, c := range map[string]struct {
		steps []step
		told  []float64
		err   string
	}{
		"to its end": {[]step{{crypto, "", left(good, 0, 0), passthrough.CheckCondition{Key: 1, ASC: 0, ASCQ: 0x1d}}, {askSanitize, "", left(good, 1<<14, 0x8000), nil}, {askSanitize, "", left(good, 1<<15, 0xffff), nil}}, []float64{0.5, 1}, ""},
		"refused":    {[]step{{crypto, "", left(0x51, 0, 0), passthrough.CheckCondition{Key: 0xb, ASC: 0, ASCQ: 0x1d}}}, nil, "status 51h"},
		"fails":      {[]step{{crypto, "", left(good, 0, 0), nil}, {askSanitize, "", left(good, 0, 0), nil}}, nil, "says that it failed"},
		"silent":     {[]step{{crypto, "", left(good, 0, 0), nil}, {askSanitize, "", "", errors.New("host status 0003h")}}, nil, ErrUnsure.Error()},
	} {
		p := ataTrace(t, map[int]uint16{59: sanitizeSupported | sanitizeHasScramble}, c.steps...)
		told, err := run(t, scsiLadder(p, atOnce), "ata-sanitize-crypto")
		if !slices.Equal(told, c.told) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: told %v, error %v", name, told, err)
		}
		p.Over()
	}
}

// An overwriting sanitize is one pass of zeros.
func TestATASanitizeOverwrite(t *testing.T) {
	overwrite := "85" + "07" + "20" + "0014" + "0001" + "00" + "00" + "57" + "00" + "4f" + "00" + "40" + "b4" + "00"
	p := ataTrace(t, map[int]uint16{59: 0x5000}, step{overwrite, "", left(good, 0, 0), nil},
		step{askSanitize, "", left(good, 1<<14, 0x4000), nil}, step{askSanitize, "", left(good, 1<<15, 0xffff), nil})
	if told, err := run(t, scsiLadder(p, atOnce), "ata-sanitize-overwrite"); err != nil || !slices.Equal(told, []float64{0.25, 1}) {
		t.Errorf("told %v, error %v", told, err)
	}
	p.Over()
}

func TestATASecureErase(t *testing.T) {
	prepare := pass(passthrough.NonData, 0x20, 0, ataErasePrepare)
	set := step{security(ataSetPassword), "0000" + hex.EncodeToString([]byte(ataPassword)), "", nil}
	unit := func(identifier string, err error) step {
		return step{security(ataEraseUnit), identifier + hex.EncodeToString([]byte(ataPassword)), "", err}
	}
	ready := step{prepare, "", left(good, 0, 0), nil}
	disable := step{security(ataDisablePassword), "", "", nil}
	cleared := step{sendIdentify, words(map[int]uint16{128: securitySupported}), "", nil}
	kept := step{sendIdentify, words(map[int]uint16{128: securitySupported | securityEnabled}), "", nil}
	aborted := errors.New("SCSI sense b/00/00")
	for name, c := range map[string]struct {
		method string
		steps  []step
		err    string
	}{
		"plain":                 {"ata-security-erase", []step{set, ready, unit("0000", nil), cleared}, ""},
		"enhanced":              {"ata-security-erase-enhanced", []step{set, ready, unit("0200", nil), cleared}, ""},
		"no password taken":     {"ata-security-erase", []step{{set.CDB, set.Data, "", aborted}}, "setting the erase password"},
		"not prepared":          {"ata-security-erase", []step{set, {prepare, "", left(0x51, 0, 0), nil}, disable}, "preparing"},
		"fails":                 {"ata-security-erase", []step{set, ready, unit("0000", aborted), disable}, "erasing"},
		"says nothing, did not": {"ata-security-erase", []step{set, ready, unit("0000", nil), kept, disable}, "still has the erase password"},
	} {
		p := ataTrace(t, map[int]uint16{89: 1, 90: 0x8001, 128: securitySupported | securityEnhanced}, c.steps...)
		_, err := run(t, scsiLadder(p, wait), c.method)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
		p.Over()
	}
}

func TestEraseTime(t *testing.T) {
	for _, c := range []struct {
		word  uint16
		bytes int64
		want  string
	}{
		{1, 1e12, "2m0s"}, {254, 1e12, "8h28m0s"}, {0x8001, 0, "2m0s"}, {0x8400, 0, "34h8m0s"},
		{255, 1e12, "8h30m0s"}, {255, 22e12, "61h7m0s"}, // longer than 508 minutes: how much longer is the disk's size
		{0, 0, "4h0m0s"}, {0, 4e12, "11h7m0s"}, {0x8000, 0, "4h0m0s"}, {0xffff, 1e12, "1092h14m0s"}, // not said, or beyond the field
	} {
		if got := eraseTime(c.word, c.bytes).String(); got != c.want {
			t.Errorf("%#x of %d bytes: %s, not %s", c.word, c.bytes, got, c.want)
		}
	}
}
