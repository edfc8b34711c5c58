package recorder_test

import (
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/recorder"
)

// media is what the BMC was asked about its virtual drive.
func (t *tape) media(at float64, action, phase string) *tape {
	return t.rec(at, "bmc.media", phase, m{"action": action, "phase": phase})
}

// cd is a boot whose CD went in three seconds before the machine was powered on.
func cd() *tape {
	t := (&tape{}).rec(-4, "boot.permit", "", nil).media(-3.5, "insert", "asked").media(-3, "insert", "done")
	return t
}

func TestVerdictsOfBootCDs(t *testing.T) {
	read := m{"status": 206, "bytes": 2048, "size": 30000000, "mac": ""}
	for name, c := range map[string]struct {
		tape *tape
		at   float64
		code string
		says string
	}{
		"just on":                 {cd().power(0, "on"), 60, recorder.CodeLoading, "not read it yet"},
		"never read":              {cd().power(0, "on"), 300, recorder.CodeCDUnread, "cannot reach the appliance"},
		"refused":                 {cd().power(0, "on").http(20, "/boot/KEY/boot.iso", m{"status": 404}), 300, recorder.CodeCDUnread, "never read"},
		"asked for its size":      {cd().power(0, "on").http(20, "/boot/KEY/boot.iso", m{"method": "HEAD"}), 300, recorder.CodeCDUnread, "never read"},
		"read when it went in":    {cd().http(-3.2, "/boot/KEY/boot.iso", read).power(0, "on"), 300, recorder.CodeLoading, "before it was powered on"},
		"read, and no agent":      {cd().http(-3.2, "/boot/KEY/boot.iso", read).power(0, "on"), 600, recorder.CodeCDNoAgent, "agent has not called"},
		"being read":              {cd().power(0, "on").http(90, "/boot/KEY/boot.iso", read), 120, recorder.CodeLoading, "ramdisk is starting"},
		"read later, no agent":    {cd().power(0, "on").http(90, "/boot/KEY/boot.iso", read), 500, recorder.CodeCDNoAgent, "agent has not called"},
		"the agent called":        {cd().power(0, "on").http(90, "/boot/KEY/boot.iso", read).rec(130, "agent.up", "", m{"address": "192.0.2.7"}), 140, recorder.CodeWell, "130 s"},
		"out again":               {cd().media(-1, "eject", "done").power(0, "on"), 300, recorder.CodeNoDiscover, "DISCOVER"},
		"the BMC did not take it": {(&tape{}).rec(-4, "boot.permit", "", nil).media(-3, "insert", "failed").power(0, "on"), 300, recorder.CodeNoDiscover, "DISCOVER"},
		"of a boot before":        {cd().power(0, "on").rec(400, "boot.permit", "", nil).power(401, "on"), 760, recorder.CodeNoDiscover, "DISCOVER"},
		"the network was faster":  {cd().power(0, "on").address(30, "firmware", nil).tftp(32, nil).http(40, "/ramdisk/vmlinuz", nil).http(42, "/ramdisk/initramfs.zst", nil), 50, recorder.CodeLoading, "ramdisk is starting"},
	} {
		t.Run(name, func(t *testing.T) {
			f := recorder.Facts{Names: names}
			f.Names.CD = "boot.iso"
			for _, r := range c.tape.out {
				f.Add(r)
			}
			v := recorder.Judge(f, epoch.Add(time.Duration(c.at*float64(time.Second))))
			if v == nil || v.Code != c.code || !strings.Contains(v.Sentence, c.says) {
				t.Errorf("%+v, want %s that says %q", v, c.code, c.says)
			}
			if v != nil && v.Level == recorder.LevelWarn && v.WayOut == "" {
				t.Error("no way out")
			}
		})
	}
}
