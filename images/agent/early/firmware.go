package early

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Want is a firmware file that a driver asked for and did not get.
type Want struct {
	Driver string `json:"driver"` // "bnx2"; "" when the kernel did not name it
	File   string `json:"file"`   // below /lib/firmware
}

// String is the sentence for people.
func (w Want) String() string {
	if w.Driver == "" {
		return "a driver wants firmware " + w.File
	}
	return "driver " + w.Driver + " wants firmware " + w.File
}

// The kernel's words: upstream "bnx2 0000:01:00.0: Direct firmware load for bnx2/x.fw failed with error -2", Debian's
// patched "bnx2 0000:01:00.0: firmware: failed to load bnx2/x.fw (-2)".
var firmwareFailures = []*regexp.Regexp{
	regexp.MustCompile(`^(?:(\S+) \S+: )?Direct firmware load for (\S+) failed with error -\d+`),
	regexp.MustCompile(`^(?:(\S+) \S+: )?firmware: failed to load (\S+) \(-\d+\)`),
}

// parseWant looks for a firmware failure in one kernel message.
func parseWant(msg string) (Want, bool) {
	for _, re := range firmwareFailures {
		if m := re.FindStringSubmatch(msg); m != nil {
			return Want{Driver: m[1], File: m[2]}, true
		}
	}
	return Want{}, false
}

// kmsgText takes the message out of a /dev/kmsg record, "6,1234,5678,-;text" and indented lines of properties after it.
func kmsgText(rec string) string {
	_, msg, ok := strings.Cut(rec, ";")
	if !ok {
		return ""
	}
	msg, _, _ = strings.Cut(msg, "\n")
	return msg
}

// watchKmsg hands each kernel message, from the first since power-on, to fn until ctx ends.
func watchKmsg(ctx context.Context, path string, fn func(msg string)) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	buf := make([]byte, 8<<10) // one record a read; the kernel's longest has 1 KB and its properties
	for {
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, unix.EPIPE): // the ring overtook us; the next read goes on with the oldest that is left
		case ctx.Err() != nil || n == 0 && err == nil:
			return nil
		case err != nil:
			return err
		default:
			fn(kmsgText(string(buf[:n])))
		}
	}
}
