package recorder

import (
	"fmt"
	"net/http"
	"time"

	"github.com/better-compute/bcd/app"
)

// CD is what is known of the boot CD in a machine's virtual drive. It goes in before the machine is powered on.
type CD struct {
	In   time.Time // the BMC showed it in the drive; zero: there is none
	Read time.Time // the BMC read of it here last; zero: never
}

// learn follows the drive.
func (c *CD) learn(r app.Record, w wire) {
	switch {
	case w.Phase != "done":
	case w.Action == "insert":
		c.In = r.Time
	case w.Action == "eject":
		*c = CD{}
	}
}

// loaded notes that the BMC read. It reads in pieces, of which few are told, and some before it shows the CD.
func (c *CD) loaded(r app.Record, w wire) {
	if w.Status < http.StatusBadRequest && (w.Method == "" || w.Method == http.MethodGet) {
		c.Read = r.Time
	}
}

// fromCD is a boot from the CD in the BMC's drive. The network hears of the machine only when its ramdisk runs.
func fromCD(f *Facts, now time.Time) *Verdict {
	cd := f.CD
	if cd.In.IsZero() {
		return nil
	}
	since := now.Sub(f.Began)
	switch {
	case cd.Read.IsZero() && since < patienceAsk:
		return loading("The boot CD is in its virtual drive since %s, and its BMC has not read it yet.", ago(cd.In, now))
	case cd.Read.IsZero():
		return warn(CodeCDUnread, fmt.Sprintf("Its BMC shows the boot CD in the virtual drive since %s, and has never read it here: the BMC cannot reach the appliance.", ago(cd.In, now)),
			"check the BMC's gateway and that a firewall lets it reach the appliance's boot port, or bind ipxe for boot; then retry")
	case cd.Read.Before(f.Began) && since < patienceAsk+patienceAgent:
		return loading("Its BMC read the boot CD before it was powered on; its firmware is starting from it.")
	case now.Sub(cd.Read) < patienceAgent:
		return loading("Its BMC read the boot CD %s; the ramdisk is starting.", ago(cd.Read, now))
	}
	v := warn(CodeCDNoAgent, fmt.Sprintf("Its BMC read the boot CD %s, and the agent has not called%s.", ago(cd.Read, now), f.lastLine(f.Began, now)),
		"look at the console: the firmware must boot in UEFI mode and not demand Secure Boot; a ramdisk that runs needs an address by DHCP and a way to this appliance")
	v.Console = f.Tail
	return v
}
