package recorder

import (
	"fmt"
	"slices"
	"time"
)

// Levels of a verdict.
const (
	LevelOK   = "ok"
	LevelWait = "wait" // nothing is wrong yet
	LevelWarn = "warn"
	LevelBad  = "error"
)

// Codes of verdicts. They are stable: tests and tools may look for them.
const (
	CodePowerFailed   = "power-failed"        // the BMC did not power it on
	CodeStarting      = "starting"            // powered on a moment ago
	CodeNoDiscover    = "no-discover"         // nothing was heard of it on the network
	CodeListenOnly    = "listen-only"         // it asked where nobody answers
	CodePoolExhausted = "pool-exhausted"      // no address is left for it
	CodeNoOffer       = "no-offer"            // it asked and could not be answered
	CodeNotTaken      = "offer-not-taken"     // it was offered an address and did not take it
	CodeWrongArch     = "wrong-architecture"  // there is no boot file for what it is
	CodeNoBootFile    = "no-boot-file"        // it was told of none for another reason
	CodeHTTPRefused   = "http-boot-refused"   // its firmware does not load over plain HTTP
	CodeNoLoader      = "no-loader"           // it has an address and asked for no file
	CodeTFTPStall     = "tftp-stall"          // a TFTP transfer broke off
	CodeBrokenOff     = "transfer-broken-off" // an HTTP transfer did
	CodeNotHere       = "file-not-here"       // it asked for a file that does not exist
	CodeNoScript      = "loader-no-script"    // the loader asked for no script
	CodeScriptWaits   = "script-waits"        // it was told to wait
	CodeToDisk        = "sent-to-disk"        // its script sent it to the disk
	CodeNoKernel      = "script-no-kernel"    // the script did not get as far as the kernel
	CodeNoAgent       = "kernel-no-agent"     // the ramdisk was loaded and its agent does not call
	CodeCDUnread      = "boot-cd-unread"      // the BMC shows the boot CD and has never read it
	CodeCDNoAgent     = "boot-cd-no-agent"    // the boot CD was read and the agent does not call
	CodeOtherPort     = "agent-other-nic"     // it runs on another port than it booted from
	CodeQuestion      = "port-question"       // its port must be confirmed by a person
	CodeTokenReused   = "token-reused"        // somebody else called in its place
	CodeNotDisk       = "netboot-not-disk"    // it asked the network when it should have booted its disk
	CodeNoSystem      = "no-sign-of-system"   // nothing was heard of the installed system
	CodeSystemAlive   = "system-alive"        // it lives, and has not called home
	CodeNoISO         = "script-no-iso"       // a CD image is to start, and was not read
	CodeISO           = "iso-read"            // a CD image is being read
	CodeWell          = "all-well"            // it is where it should be
	CodeLoading       = "loading"             // it is on its way
)

// Patience is how long each stage of a boot may take before its verdict is a warning.
const (
	startingFor    = 30 * time.Second // nobody's firmware is faster
	patienceAsk    = 4 * time.Minute  // large servers test their memory that long
	patienceTake   = 10 * time.Second
	patienceLoad   = 20 * time.Second
	patienceScript = 30 * time.Second
	patienceKernel = 90 * time.Second // a storm shares one wire
	patienceAgent  = 2 * time.Minute
	patienceSystem = 20 * time.Minute
	settled        = 10 * time.Minute // after which a boot that went well is nobody's news
	forgotten      = 2 * time.Hour    // after which no boot is
)

// Verdict is how a boot stands, in a sentence.
type Verdict struct {
	Code     string    `json:"code"`
	Level    string    `json:"level"` // "ok", "wait", "warn", "error"
	Sentence string    `json:"sentence"`
	WayOut   string    `json:"wayOut,omitempty"` // what a person can do
	Began    time.Time `json:"began"`
	Marks    []Mark    `json:"marks,omitempty"`   // how far it came
	Console  []string  `json:"console,omitempty"` // the last lines, when they tell more than the network
}

// Mark is a point that a boot has passed.
type Mark struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"` // since the boot began
}

// Text is the sentence and the way out, for an error's message.
func (v Verdict) Text() string {
	if v.WayOut == "" {
		return v.Sentence
	}
	return v.Sentence + " (" + v.WayOut + ")"
}

// rule says how a boot stands, or nothing when it has not come that far.
type rule func(f *Facts, now time.Time) *Verdict

// The rules, the first that speaks wins: from what a boot reached last back to its power-on.
var (
	toRamdisk = []rule{powerFailed, alarmed, agentUp, asked, kernelLoaded, kernelBroken, scriptGiven, fromCD, loaderLoaded, loaderBroken, httpRefused, noBootFile, addressTaken, offered, unanswered, silent}
	toISO     = []rule{powerFailed, imageRead, asked, imageScript, scriptGiven, loaderLoaded, loaderBroken, httpRefused, noBootFile, addressTaken, offered, unanswered, silent}
	toMedia   = []rule{powerFailed, imageRead, mediaSilent}
	toDisk    = []rule{powerFailed, systemUp, asksNetwork, noSystem}
)

// Judge says how a boot stands; nil when none is under way or it is over long since. It depends on nothing but its arguments.
func Judge(f Facts, now time.Time) *Verdict {
	if f.Began.IsZero() || !f.Off.IsZero() || now.Sub(f.Began) > forgotten {
		return nil
	}
	rules := toDisk
	switch f.For {
	case WantRamdisk:
		rules = toRamdisk
	case WantISO:
		rules = toISO
	case WantMedia:
		rules = toMedia
	}
	for _, r := range rules {
		if v := r(&f, now); v != nil {
			if v.Level == LevelOK && now.Sub(f.ended()) > settled {
				return nil
			}
			v.Began, v.Marks = f.Began, f.marks()
			return v
		}
	}
	return nil
}

// ended is when a boot that went well had done so.
func (f *Facts) ended() time.Time {
	last := f.Agent
	for _, t := range []time.Time{f.ISO.Read, f.Alive, f.Home} {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// marks lists what was passed, in order.
func (f *Facts) marks() []Mark {
	var out []Mark
	add := func(name string, at time.Time) {
		if !at.IsZero() {
			out = append(out, Mark{name, at, at.Sub(f.Began).Round(100 * time.Millisecond).Seconds()})
		}
	}
	if f.Powered {
		add("power-on", f.Began)
	}
	add("DISCOVER", f.Asked)
	add("address", f.Addressed)
	for _, l := range []struct {
		name string
		Load
	}{{"loader", f.Loader}, {"kernel", f.Kernel}, {"ramdisk", f.Initramfs}} {
		if l.ok() {
			add(l.name, l.At)
		}
		if l.name == "loader" {
			add("script", f.Script)
		}
	}
	add("image", f.ISO.Read)
	add("agent", f.Agent)
	add("system", f.Alive)
	add("home", f.Home)
	slices.SortStableFunc(out, func(a, b Mark) int { return a.At.Compare(b.At) })
	return out
}

// ago writes how long before now a time was, in seconds.
func ago(t, now time.Time) string { return fmt.Sprintf("%d s ago", secs(now.Sub(t))) }

func secs(d time.Duration) int { return max(0, int(d.Round(time.Second)/time.Second)) }

// opening is the first words of a sentence: how the boot began.
func (f *Facts) opening(now time.Time) string {
	if f.Powered {
		return "Powered on " + ago(f.Began, now)
	}
	return "Started by itself, heard " + ago(f.Began, now)
}

// loading is the verdict of a boot that goes on.
func loading(format string, args ...any) *Verdict {
	return &Verdict{Code: CodeLoading, Level: LevelWait, Sentence: fmt.Sprintf(format, args...)}
}

func warn(code, sentence, wayOut string) *Verdict {
	return &Verdict{Code: code, Level: LevelWarn, Sentence: sentence, WayOut: wayOut}
}

func bad(code, sentence, wayOut string) *Verdict {
	return &Verdict{Code: code, Level: LevelBad, Sentence: sentence, WayOut: wayOut}
}

// size writes a number of bytes.
func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
