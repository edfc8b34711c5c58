package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func TestTableOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attempts.json")
	open := func() *table {
		tb, err := openTable(path, "s1")
		if err != nil {
			t.Fatal(err)
		}
		return tb
	}
	tb := open()
	for _, key := range []string{"done", "running", "reboot", "failed"} {
		if fresh, err := tb.begin(agentv1.Command{Key: key}); !fresh || err != nil {
			t.Fatalf("%s: %v %v", key, fresh, err)
		}
	}
	if err := errors.Join(tb.end("done", 7, false, nil), tb.end("reboot", nil, true, nil), tb.end("failed", nil, false, errors.New("x"))); err != nil {
		t.Fatal(err)
	}
	if err := tb.acked("done", 0); err != nil {
		t.Fatal(err)
	}
	tb = open()
	want := map[string]string{"done": "done", "running": "failed", "reboot": "failed", "failed": "failed"}
	lost := map[string]bool{"running": true, "reboot": true} // a reboot that never came is as unknown as a write cut short
	for _, s := range tb.states() {
		if s.State != want[s.Key] || (s.Error != nil && s.Error.Reason == agentv1.ReasonAgentRestarted) != lost[s.Key] {
			t.Errorf("%s: %s %+v", s.Key, s.State, s.Error)
		}
	}
	if fresh, _ := tb.begin(agentv1.Command{Key: "done", Run: 5}); fresh {
		t.Error("a higher run let a finished key run again")
	}
	if other, err := openTable(path, "s2"); err != nil || len(other.states()) != 0 {
		t.Error("another session's table was taken over")
	}
}

func TestNothingRunsThatIsNotWrittenDown(t *testing.T) {
	dir := t.TempDir()
	tb, err := openTable(filepath.Join(dir, "state", "attempts.json"), "s1")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "state")), os.WriteFile(filepath.Join(dir, "state"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if fresh, err := tb.begin(agentv1.Command{Key: "k"}); app.CodeOf(err) != app.StorageFull || len(tb.states()) != 0 {
		t.Errorf("fresh %v, %v", fresh, err)
	}
}

func TestTableIsBounded(t *testing.T) {
	tb, err := openTable(filepath.Join(t.TempDir(), "attempts.json"), "s1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxAttempts {
		if _, err := tb.begin(agentv1.Command{Key: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tb.begin(agentv1.Command{Key: "more"}); app.CodeOf(err) != app.TooLarge {
		t.Errorf("one too many: %v", err)
	}
	big := strings.Repeat("x", 700<<10)
	for i := range 20 {
		if err := tb.end(strconv.Itoa(i), big, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	kept, sent := 0, 0
	for _, e := range tb.file.Attempts {
		kept += len(e.Result)
	}
	for _, s := range tb.states() {
		sent += len(s.Result)
	}
	if kept > maxKept || sent > maxTable || sent == 0 {
		t.Errorf("kept %d bytes, a poll has %d", kept, sent)
	}
}

func TestSetClock(t *testing.T) {
	rtc := filepath.Join(t.TempDir(), "rtc0")
	synctest.Test(t, func(t *testing.T) { // no time passes between setting and reading
		clock := session.NewClock(nil)
		var set time.Time
		h := setClock(clock, func(now time.Time) error { set = now; return nil }, rtc)
		if _, err := h(t.Context(), agentv1.Command{}, nil); app.CodeOf(err) != app.Unavailable {
			t.Errorf("without a server time: %v", err)
		}
		clock.Observe(time.Now())
		got, err := h(t.Context(), agentv1.Command{}, nil)
		if r, ok := got.(agentv1.SetClockResult); err != nil || !ok || r.RTC || time.Since(set) > time.Minute {
			t.Errorf("%+v %v", got, err)
		}
		clock.Observe(time.Now().Add(time.Hour)) // a clock that was told and does not follow
		if _, err := h(t.Context(), agentv1.Command{}, nil); err == nil {
			t.Error("a clock that reads wrong was taken as set")
		}
	})
	when := time.Date(2031, 12, 31, 23, 59, 58, 0, time.UTC)
	if back := fromRTC(rtcTime(when)); !back.Equal(when) {
		t.Errorf("%s became %s", when, back)
	}
}
