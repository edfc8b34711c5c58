package recorder

import (
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
)

// ISO is what is known of the CD image that a machine is to start.
type ISO struct {
	Read  time.Time // first; zero: never
	Bytes int64     // that left since
}

// isoRead learns that a CD image is read. A machine that its loader started from it boots its disk the next time.
func (f *Facts) isoRead(r app.Record, w wire) {
	first(&f.ISO.Read, r.Time)
	f.ISO.Bytes = w.Bytes
	if f.For == WantISO {
		f.Want = WantDisk
	}
}

// forMedia is a start from a virtual drive that begins: its BMC may have read the image before. It is for this start only.
func (f *Facts) forMedia(was ISO) {
	if f.For == WantMedia {
		f.ISO, f.Want = was, WantDisk
	}
}

// imageRead is a CD image that is on its way.
func imageRead(f *Facts, now time.Time) *Verdict {
	if f.ISO.Read.IsZero() {
		return nil
	}
	return &Verdict{Code: CodeISO, Level: LevelOK, Sentence: fmt.Sprintf("The image was first read %s; %s of it left since.", ago(f.ISO.Read, now), size(f.ISO.Bytes))}
}

// imageScript is between iPXE's script and the image.
func imageScript(f *Facts, now time.Time) *Verdict {
	since := now.Sub(f.Script)
	switch {
	case f.Script.IsZero(), f.ScriptErr != "":
		return nil // scriptGiven speaks
	case f.ScriptFor != string(WantISO):
		return bad(CodeToDisk, fmt.Sprintf("It asked for its script %s and was sent to its disk: no permission to start the image was there.", ago(f.Script, now)),
			"retry the verb: it gives the permission before it powers the machine on")
	case since < patienceScript:
		return loading("Its script was handed out %s; the image is next.", ago(f.Script, now))
	}
	return warn(CodeNoISO, fmt.Sprintf("Its script was handed out %s, and the image was not read since.", ago(f.Script, now)),
		"look at its screen for iPXE's message: a loader that cannot read images in place is replaced by another build of iPXE")
}

// mediaSilent is a machine that is to start from its virtual drive, whose image nobody read.
func mediaSilent(f *Facts, now time.Time) *Verdict {
	if now.Sub(f.Began) < patienceAsk {
		return &Verdict{Code: CodeStarting, Level: LevelWait, Sentence: f.opening(now) + "; its firmware is starting, and its BMC has not read the image yet."}
	}
	return warn(CodeNoISO, f.opening(now)+", and its BMC has not read the image.", "check that the BMC reaches this host over HTTP, and that the firmware starts from CD drives")
}
