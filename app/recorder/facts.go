package recorder

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// Want is what a boot is for.
type Want string

// What a boot may be for; "" is not known.
const (
	WantRamdisk Want = "ramdisk" // a permission to netboot was given
	WantDisk    Want = "disk"    // it was withdrawn: the installed system is to start
	WantISO     Want = "iso"     // a loader is to start a CD image
	WantMedia   Want = "media"   // a CD image is to start from the BMC's virtual drive
)

// Names are the base names of the files of a boot.
type Names struct {
	Loaders           []string
	Kernel, Initramfs string
	Whole             string // loader, kernel and initramfs in one file
	CD                string // the same, on a CD for virtual media
	ToDisk            string // the program that sends a machine on to its disk
}

// Limits of Facts.
const (
	maxFactPorts = 16
	maxTail      = 12  // lines of the console
	maxTailLine  = 160 // bytes of one
)

// quiet is how long nothing of the firmware must have been seen for its next request to count as another boot.
const quiet = 10 * time.Minute

// Port is what was seen of one network port in this boot.
type Port struct {
	MAC       app.MAC
	Asked     time.Time // last DISCOVER
	Offered   time.Time // last offer of ours
	Acked     time.Time // last acknowledgement
	Address   string    // offered or acknowledged
	Interface string    // of ours that it was heard on
	Stage     string    // "firmware", "http", "ipxe", "os": who asked last
	Arch      string
	File      string // the boot file it was told
	Reason    string // why it was told that, or none
	Booted    bool   // firmware or a loader asked on it
}

// Facts are what is known of a machine's boot: the one under way, or the last.
type Facts struct {
	Names Names
	Want  Want // of the next boot

	Began     time.Time     // power-on was asked for, or the firmware was heard when nobody had; zero: nothing is known
	Powered   bool          // the BMC was asked to power it on
	On        time.Time     // the BMC said that it is on
	Off       time.Time     // it was powered off since
	Failed    string        // why it could not be powered on
	For       Want          // what this boot is for
	Asked     time.Time     // first DISCOVER of firmware or loader
	Addressed time.Time     // first address that firmware or loader took
	Usual     time.Duration // from power-on to Asked, in the last boot that got there

	Ports      []Port
	ListenOnly string // the subnet on which it asked and nobody answers
	Exhausted  time.Time
	Refused    string // the DHCP server's last trouble with it
	Rival      string // another DHCP server's address, when one was heard
	RivalTook  bool   // the machine took that server's offer

	Loader, Kernel, Initramfs Load
	Missing                   Load // the last file that is not here
	Script                    time.Time
	ScriptFor                 string // "ramdisk", "disk", "none"
	ScriptErr                 string
	ScriptMAC                 app.MAC

	Agent       time.Time
	AgentMAC    app.MAC
	AgentAddr   string
	Alarm       string
	Question    string    // what a person is asked about the port that it boots from
	Answer      string    // how that is answered
	Alive, Home time.Time // signs of the installed system
	CD          CD        // in the BMC's virtual drive
	ISO         ISO       // an operator's CD image
	HTTPRefused time.Time // the firmware said that it does not load over plain HTTP
	HTTPAsked   time.Time // the firmware asked last for a boot program over HTTP, or for its size
	Tail        []string  // end of the console
	Printed     time.Time // last line of the console

	seen time.Time // last request of firmware or loader
	last int64     // id of the last record added
}

func (f *Facts) copy() Facts {
	c := *f
	c.Ports, c.Tail = slices.Clone(f.Ports), slices.Clone(f.Tail)
	return c
}

// Add learns from one record. Records are added in the order of their ids; one that was added before changes nothing.
func (f *Facts) Add(r app.Record) {
	if r.ID != 0 {
		if r.ID <= f.last {
			return
		}
		f.last = r.ID
	}
	var w wire
	if len(r.Data) > 0 && r.Kind != KindConsole {
		_ = json.Unmarshal(r.Data, &w) // what does not decode tells nothing
	}
	family, _, _ := strings.Cut(r.Kind, ".")
	switch family {
	case "bmc":
		f.bmc(r, w)
	case "boot":
		f.permission(r, w)
	case "dhcp":
		f.dhcp(r, w)
	case "tftp", "http":
		f.loaded(r, w)
	case "ipxe":
		f.script(r, w)
	case "iso":
		f.isoRead(r, w)
	case "agent", "os":
		f.signal(r, w)
	case "console":
		f.console(r)
	}
	if strings.Contains(r.Message, "UEFI0417") { // Dell: HTTP boot refused because the address is not https
		f.HTTPRefused = r.Time
	}
}

// begin starts the facts of another boot.
func (f *Facts) begin(at time.Time, powered bool) {
	usual := f.Usual
	if f.Powered && !f.Asked.IsZero() {
		usual = f.Asked.Sub(f.Began)
	}
	was := f.ISO
	*f = Facts{Names: f.Names, Want: f.Want, For: f.Want, Began: at, Powered: powered, Usual: usual, CD: f.CD, last: f.last}
	f.forMedia(was)
}

// over reports whether the boot has come to its end.
func (f *Facts) over() bool {
	return f.Began.IsZero() || !f.Off.IsZero() || !f.Agent.IsZero() || f.For == WantISO && !f.ISO.Read.IsZero() || !f.Alive.IsZero() || !f.Home.IsZero()
}

// bmc learns from what a BMC was asked.
func (f *Facts) bmc(r app.Record, w wire) {
	if r.Kind == "bmc.media" {
		f.CD.learn(r, w)
	}
	if r.Kind != "bmc.power" {
		return
	}
	switch turnsOn := w.Action == "on" || w.Action == "cycle" || w.Action == "reset"; {
	case w.Phase == "asked" && w.Action == "on" && w.Was == "on":
	case w.Phase == "asked" && turnsOn:
		f.begin(r.Time, true)
	case w.Phase == "done" && turnsOn && f.Powered:
		f.On = r.Time
	case w.Phase == "failed" && turnsOn:
		f.Failed = r.Message
	case w.Phase == "done" && (w.Action == "off" || w.Action == "soft"):
		f.Off = r.Time
	}
}

// permission learns what the next boot is for.
func (f *Facts) permission(r app.Record, w wire) {
	switch r.Kind {
	case "boot.permit", "boot.iso", "boot.media":
		f.Want = map[string]Want{"boot.permit": WantRamdisk, "boot.iso": WantISO, "boot.media": WantMedia}[r.Kind]
		if !f.over() {
			f.For = f.Want
		}
		f.CD, f.ISO = CD{}, ISO{}
	case "boot.revoke":
		f.Want = WantDisk
	case "boot.question":
		f.Question, f.Answer = r.Message, w.WayOut
	}
}

// at gives a port's entry; nil when there are too many.
func (f *Facts) at(mac app.MAC) *Port {
	for i := range f.Ports {
		if f.Ports[i].MAC == mac {
			return &f.Ports[i]
		}
	}
	if mac == "" || len(f.Ports) >= maxFactPorts {
		return nil
	}
	f.Ports = append(f.Ports, Port{MAC: mac})
	return &f.Ports[len(f.Ports)-1]
}

// firmware reports a stage before any operating system or ramdisk.
func firmware(stage string) bool { return stage == "firmware" || stage == "http" || stage == "ipxe" }

// dhcp learns from an exchange.
func (f *Facts) dhcp(r app.Record, w wire) {
	discover := strings.EqualFold(w.Request, "DISCOVER")
	if firmware(w.Stage) {
		if discover && (f.over() || r.Time.Sub(f.seen) > quiet && r.Time.Sub(f.Began) > quiet) {
			f.begin(r.Time, false)
		}
		f.seen = r.Time
		first(&f.Asked, r.Time)
	}
	p := f.at(w.port())
	if p == nil {
		return
	}
	if p.Booted = p.Booted || firmware(w.Stage); w.Stage != "" {
		p.Stage = w.Stage
	}
	if discover {
		p.Asked = r.Time
	}
	switch r.Kind {
	case "dhcp.offer":
		p.Offered = r.Time
		p.told(w)
	case "dhcp.ack":
		p.Acked = r.Time
		p.told(w)
		if firmware(w.Stage) {
			first(&f.Addressed, r.Time)
		}
		f.ListenOnly, f.Exhausted, f.Refused, f.RivalTook = "", time.Time{}, "", false
	case "dhcp.proxy":
		if p.told(w); discover {
			p.Offered = r.Time
		} else {
			p.Acked = r.Time
		}
	case "dhcp.heard":
		p.told(w)
		if !p.wrongArch() {
			f.ListenOnly = w.Subnet
		}
	case "dhcp.exhausted":
		f.Exhausted = r.Time
	case "dhcp.failed", "dhcp.nak", "dhcp.decline":
		f.Refused = r.Message
	case "dhcp.elsewhere":
		f.Rival, f.RivalTook = w.Server, true
	}
}

// wrongArch reports a port that was told of no boot file because there is none for what its machine is.
func (p *Port) wrongArch() bool {
	return p.Booted && p.File == "" && (strings.Contains(p.Reason, "no loader for") || strings.Contains(p.Reason, "no ramdisk for"))
}

// told notes what a port was answered.
func (p *Port) told(w wire) {
	p.Address, p.File, p.Reason, p.Interface = w.Address, w.File, w.Reason, w.Interface
	if w.Arch != "" {
		p.Arch = w.Arch
	}
}

// script learns from an iPXE script that was handed out.
func (f *Facts) script(r app.Record, w wire) {
	if r.Kind == "ipxe.script" {
		f.Script, f.ScriptFor, f.ScriptErr, f.ScriptMAC, f.seen = r.Time, w.Kind, w.Error, w.port(), r.Time
	}
}

// signal learns from the ramdisk's agent and from the installed system.
func (f *Facts) signal(r app.Record, w wire) {
	switch r.Kind {
	case "agent.up":
		first(&f.Agent, r.Time)
		f.AgentAddr, f.AgentMAC = w.Address, f.portAt(w.Address)
	case "agent.alarm":
		f.Alarm = r.Message
	case "os.alive":
		first(&f.Alive, r.Time)
	case "os.home":
		first(&f.Home, r.Time)
	}
}

// first notes a time that was not noted before.
func first(to *time.Time, at time.Time) {
	if to.IsZero() {
		*to = at
	}
}

// portAt is the port that holds an address.
func (f *Facts) portAt(address string) app.MAC {
	for _, p := range f.Ports {
		if address != "" && p.Address == address {
			return p.MAC
		}
	}
	return ""
}

// bootPort is the port that the machine loads its boot files on.
func (f *Facts) bootPort() app.MAC {
	if f.Kernel.MAC != "" {
		return f.Kernel.MAC
	}
	if f.ScriptMAC != "" {
		return f.ScriptMAC
	}
	var last Port
	for _, p := range f.Ports {
		if p.Booted && !p.Asked.Before(last.Asked) {
			last = p
		}
	}
	return last.MAC
}

// console keeps the end of what was printed.
func (f *Facts) console(r app.Record) {
	if r.Kind != KindConsole {
		return
	}
	if len(f.Tail) >= maxTail {
		f.Tail = slices.Delete(f.Tail, 0, len(f.Tail)-maxTail+1)
	}
	f.Tail, f.Printed = append(f.Tail, Plain(r.Message, maxTailLine)), r.Time
}
