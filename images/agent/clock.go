package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// clockTolerance is how far a clock that was just set may be from the time it was set to. The hardware clock has seconds.
const clockTolerance = 2 * time.Second

// setClock serves agentv1.KindSetClock: the system clock and the hardware clock get the server's time and are read back. A
// machine without a hardware clock at rtc ("/dev/rtc0") is told so in the result.
func setClock(clock *session.Clock, set func(time.Time) error, rtc string) Handler {
	return func(_ context.Context, _ agentv1.Command, _ func(agentv1.ProgressReport)) (any, error) {
		now, known := clock.Now()
		if !known {
			return nil, app.Errorf(app.Unavailable, "no-server-time", "the appliance has not told its time yet")
		}
		if err := set(now); err != nil {
			return nil, app.Errorf(app.Unavailable, "clock-not-set", "the system clock could not be set: %w", err)
		}
		want, _ := clock.Now()
		got := time.Now().Round(0)
		if off := got.Sub(want).Abs(); off > clockTolerance {
			return nil, app.Errorf(app.Unavailable, "clock-not-set", "the system clock was set and reads %s off", off)
		}
		hasRTC, err := setRTC(rtc, want)
		if err != nil {
			return nil, app.Errorf(app.Unavailable, "rtc-not-set", "the hardware clock could not be set: %w", err).
				Do("replace the board's battery if this comes back")
		}
		return agentv1.SetClockResult{Time: got.UTC(), RTC: hasRTC}, nil
	}
}

// setSystemClock sets CLOCK_REALTIME.
func setSystemClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// setRTC sets the hardware clock to t in UTC and reads it back. It reports false when there is none.
func setRTC(path string, t time.Time) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening hardware clock: %w", err)
	}
	defer f.Close()
	if err := unix.IoctlSetRTCTime(int(f.Fd()), rtcTime(t)); err != nil {
		return true, fmt.Errorf("setting hardware clock: %w", err)
	}
	got, err := unix.IoctlGetRTCTime(int(f.Fd()))
	if err != nil {
		return true, fmt.Errorf("reading hardware clock back: %w", err)
	}
	if off := fromRTC(got).Sub(t).Abs(); off > clockTolerance {
		return true, fmt.Errorf("it was set to %s and reads %s", t.UTC().Format(time.RFC3339), fromRTC(got).Format(time.RFC3339))
	}
	return true, nil
}

func rtcTime(t time.Time) *unix.RTCTime {
	t = t.UTC()
	return &unix.RTCTime{
		Sec: int32(t.Second()), Min: int32(t.Minute()), Hour: int32(t.Hour()),
		Mday: int32(t.Day()), Mon: int32(t.Month()) - 1, Year: int32(t.Year()) - 1900,
	}
}

func fromRTC(r *unix.RTCTime) time.Time {
	return time.Date(int(r.Year)+1900, time.Month(r.Mon+1), int(r.Mday), int(r.Hour), int(r.Min), int(r.Sec), 0, time.UTC)
}
