package sntp

import (
	"time"

	"golang.org/x/sys/unix"
)

// HostClock asks the kernel whether some time daemon keeps this host's clock.
func HostClock() Health {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil || state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return Health{}
	}
	return Health{Synchronised: true, MaxError: min(time.Duration(t.Maxerror)*time.Microsecond, time.Minute)}
}
