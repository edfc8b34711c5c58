package wipe

import (
	"bytes"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
	"github.com/better-compute/bcd/images/agent/wipe/internal/erase"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// erasing is a replayed disk whose data go when it is told SECURITY ERASE UNIT, or SANITIZE DEVICE to overwrite.
type erasing struct {
	*replay.Trace
	path string
}

func (e erasing) Do(cdb []byte, dir passthrough.Direction, data []byte, timeout time.Duration) ([]byte, error) {
	sense, err := e.Trace.Do(cdb, dir, data, timeout)
	if err == nil && len(cdb) == 16 && (cdb[14] == 0xf4 || cdb[14] == 0xb4 && cdb[4] == 0x14) {
		info, statErr := os.Stat(e.path)
		if statErr != nil {
			return nil, statErr
		}
		return sense, os.WriteFile(e.path, bytes.Repeat([]byte{0xff}, int(info.Size())), 0o600)
	}
	return sense, err
}

// What a certificate says of real drives, from the pages that they were captured with down to the method and the note.
func TestCapturedDisksInCertificates(t *testing.T) {
	const identify = "85 08 0e 00 00 00 01 00 00 00 00 00 00 40 ec 00"
	page := func(name string) string { return hex.EncodeToString(replay.Page(t, name+".words", 512)) }
	ask := func(name string) []replay.Step {
		return []replay.Step{{CDB: "12 00 00 00 60 00", Data: "00 00 05 02 5b 00 00 00 41 54 41 20 20 20 20 20"}, {CDB: identify, Data: page(name)}}
	}
	const sanitizeStatus = "85 07 20 00 00 00 00 00 00 00 00 00 00 40 b4 00"
	sanitized := "72 01 00 1d 00 00 00 0e 09 0c 01 00 80 00 00 ff 00 ff 00 00 40 50"
	good := "72 01 00 1d 00 00 00 0e 09 0c 00 00 00 01 00 00 00 00 00 00 00 50"
	for name, c := range map[string]struct {
		steps  []replay.Step
		method string
		note   string // all of it
	}{
		"Samsung 870 QVO, frozen": {ask("ata-samsung-870qvo"), "discard+zero",
			"the firmware froze the disk's security, so Security Erase is refused: plug the disk in while the machine runs, or turn the freeze off in the firmware's setup"},
		"Samsung 850 EVO": {append(ask("ata-samsung-850evo"),
			replay.Step{CDB: "85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f1 00", Data: "0000 6263642d77697065"},
			replay.Step{CDB: "85 06 20 00 00 00 00 00 00 00 00 00 00 40 f3 00", Sense: good},
			replay.Step{CDB: "85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f4 00", Data: "0200 6263642d77697065"},
			replay.Step{CDB: identify, Data: page("ata-samsung-850evo")}), "ata-security-erase-enhanced", ""},
		"WD 28 TB behind a SAS3008": {append(ask("ata-wd-hs7282"), replay.Step{CDB: sanitizeStatus, Sense: "00 00 00 00 00 00 00 00"},
			replay.Step{CDB: "85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f1 00", Data: "0000 6263642d77697065"},
			replay.Step{CDB: "85 06 20 00 00 00 00 00 00 00 00 00 00 40 f3 00", Sense: good},
			replay.Step{CDB: "85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f4 00", Data: "0000 6263642d77697065"},
			replay.Step{CDB: identify, Data: page("ata-wd-hs7282")}), "ata-security-erase", "sanitize is not used, because its end would not be seen: the controller does not pass on what the disk says of its sanitize"},
		"WD 28 TB": {append(ask("ata-wd-hs7282"), replay.Step{CDB: sanitizeStatus, Sense: sanitized},
			replay.Step{CDB: "85 07 20 00 14 00 01 00 00 57 00 4f 00 40 b4 00", Sense: good},
			replay.Step{CDB: sanitizeStatus, Sense: sanitized}), "ata-sanitize-overwrite", ""},
		"Maxtor 6B200M0": {ask("ata-maxtor-6b200m0"), "discard+zero", "the disk has no ATA security feature set"},
		"locked by another's password, behind older Linux": {append(locked(t, ask("ata-samsung-850evo")),
			replay.Step{CDB: "85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f2 00", Sense: "70 00 05 00 00 00 00 0a 04 51 40 01 21 04", Err: passthrough.CheckCondition{Key: 5, ASC: 0x21, ASCQ: 4}}),
			"discard+zero", "the disk is locked by a password that is not ours, so Security Erase is refused: take the password off with the tool that set it (hdparm --security-disable)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 4<<20)
			p := &replay.Trace{TB: t, Steps: c.steps}
			r.cfg.Drive = func(path string, _ agentv1.Disk) (Drive, error) {
				return erase.OnSCSI(erasing{p, path}, io.NopCloser(strings.NewReader(""))), nil
			}
			out, err := r.wipe("S1")
			if err != nil {
				t.Fatal(err)
			}
			p.Over()
			if d := out.Disks[0]; !d.Erased || d.Method != c.method || d.Note != c.note || d.Sentinels == 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// locked sets the bits of word 128 that openSeaChest printed of a locked disk, and mends the sum.
func locked(t *testing.T, steps []replay.Step) []replay.Step {
	b := replay.Bytes(t, steps[1].Data)
	b[511] += b[256] - 0x27
	b[256] = 0x27
	steps[1].Data = hex.EncodeToString(b)
	return steps
}
