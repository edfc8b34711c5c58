package recorder_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
)

func TestConsoleIsCutIntoPlainLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, recorder.Config{})
		defer r.stop()
		c := r.Console("m-1")
		for _, part := range []string{"\x1b[2J\x1b[1;1HGRUB load", "ing\r\n\r\n  \n", "\x1b]0;title\x07login: \xff\u202e\n", strings.Repeat("x", 5000) + "\nno end"} {
			if n, err := c.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("wrote %d of %d, %v", n, len(part), err)
			}
		}
		settle()
		got := r.messages(t, app.RecordFilter{MachineID: "m-1"})
		if len(got) != 3 || strings.TrimSpace(got[2]) != "GRUB loading" || got[1] != "login: \uFFFD" || !strings.HasPrefix(got[0], "xxx") || len(got[0]) > 1100 {
			t.Errorf("lines %.60q", got)
		}
	})
}

// Firmware and iPXE print the address of what they load. Its key opens the boot's data, and stays out of what is kept.
func TestKeysOfBootsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, recorder.Config{})
		defer r.stop()
		r.Console("m-1").Line("  URI: http://192.0.2.1:8080/boot/boot-abcdefgh234567xy/boot.efi")
		r.Console("m-1").Line("http://192.0.2.1:8080/boot/boot-abcdefgh234567xy/bootdata.cpio... ok; loaded /boot/vmlinuz and /boot/grub/grub.cfg")
		settle()
		want := "[http://192.0.2.1:8080/boot/KEY/bootdata.cpio... ok; loaded /boot/vmlinuz and /boot/grub/grub.cfg   URI: http://192.0.2.1:8080/boot/KEY/boot.efi]"
		if got := fmt.Sprint(r.messages(t, app.RecordFilter{MachineID: "m-1"})); got != want {
			t.Errorf("kept %s", got)
		}
	})
}

func TestAConsoleThatPrintsWithoutEndIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, recorder.Config{})
		defer r.stop()
		c := r.Console("m-1")
		for range 5000 {
			c.Line("again")
		}
		settle()
		c.Line("later")
		settle()
		got := r.messages(t, app.RecordFilter{MachineID: "m-1", Limit: 2})
		if fmt.Sprint(got) != "[later 3000 lines of the console were left out because it printed too fast]" {
			t.Errorf("last lines %v", got)
		}
	})
}

func FuzzPlain(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31mred\x1b[0m", "\x1b]0;t\x1b\\x", "\x1b", "\x1b[", "\x1bP\n", "é\xff\u202e\u2028", strings.Repeat("\x1b[m", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := recorder.Plain(s, 100)
		if len(got) > 110 || !utf8.ValidString(got) {
			t.Errorf("%d bytes of %q", len(got), got)
		}
		for _, c := range got {
			if c < 0x20 || c == 0x7f || c == 0x202e || c == 0x2028 || c >= 0x80 && c < 0xa0 {
				t.Errorf("%q holds %U", got, c)
			}
		}
		if again := recorder.Plain(got, 200); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}
