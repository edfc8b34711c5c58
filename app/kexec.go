package app

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// BootPath is how the installed system is entered for the first time.
type BootPath string

// The boot paths. Auto, the default, is kexec where it is known to work and a reboot where it is not.
const (
	BootAuto   BootPath = "auto"
	BootKexec  BootPath = "kexec"
	BootReboot BootPath = "reboot"
)

// KexecOutcome is how a jump into an installed system ended.
type KexecOutcome string

// The outcomes. A system that lived and never called home is no outcome: it proves nothing.
const (
	KexecWorked   KexecOutcome = "worked"   // the system called home
	KexecSilent   KexecOutcome = "silent"   // nothing was heard, and the machine was reset
	KexecPanicked KexecOutcome = "panicked" // its kernel said on the console that it stops
	KexecRefused  KexecOutcome = "refused"  // the ramdisk's kernel would not, or the image has no entry that can be started
)

// KexecTrial is one deploy that entered its system by kexec, or tried to.
type KexecTrial struct {
	Attempt  string       `json:"attempt"` // key of the workflow's step: a trial is kept once, however often it is told
	Make     string       `json:"make"`    // KexecMake of the machine
	Profile  string       `json:"hardwareProfile,omitempty"`
	Image    string       `json:"image"` // its name
	Machine  string       `json:"machine"`
	Outcome  KexecOutcome `json:"outcome"`
	Reason   string       `json:"reason,omitempty"` // kebab-case, of a failure
	Sentence string       `json:"sentence,omitempty"`
	Time     time.Time    `json:"time"`
}

// Failed reports a trial that a reboot had to follow.
func (t *KexecTrial) Failed() bool { return t.Outcome != KexecWorked }

// ofHardware reports a trial that says something about every image on the same make.
func (t *KexecTrial) ofHardware() bool { return t.Outcome != KexecRefused }

// KexecMake is what machines of one make are called in the memory of kexec: vendor and model, or the machine itself when its
// model is not known.
func KexecMake(m *Machine) string {
	if m.Model == "" {
		return "machine " + m.ID
	}
	return strings.TrimSpace(m.Vendor + " " + m.Model)
}

// KexecMemory is what is known of kexec on a make, for one profile and image.
type KexecMemory struct {
	Make    string `json:"make"`
	Profile string `json:"hardwareProfile,omitempty"`
	Image   string `json:"image,omitempty"` // "": all
	// Verdict is "worked", "failed" or "unknown", by the last trial that says something about this image.
	Verdict     string      `json:"verdict"`
	Worked      int         `json:"worked"`
	Tried       int         `json:"tried"`
	LastFailure *KexecTrial `json:"lastFailure,omitempty"`
	Sentence    string      `json:"sentence"` // the same for people
}

// The verdicts of a KexecMemory.
const (
	KexecKnownGood = "worked"
	KexecKnownBad  = "failed"
	KexecUnknown   = "unknown"
)

// RecallKexec judges trials of one make, newest first, for an image and a profile; image "" asks about all of them. What was
// tried with the same image and profile says most; without such a trial the other ones of the make speak, but for those
// that only say something about their own image.
func RecallKexec(name, profile, image string, trials []KexecTrial) KexecMemory {
	m := KexecMemory{Make: name, Profile: profile, Image: image, Verdict: KexecUnknown}
	same := func(t *KexecTrial) bool { return t.Profile == profile && (image == "" || t.Image == image) }
	exact := false
	for i := range trials {
		exact = exact || same(&trials[i])
	}
	for i := range trials {
		t := &trials[i]
		if exact && !same(t) || !exact && !t.ofHardware() {
			continue
		}
		m.Tried++
		if !t.Failed() {
			m.Worked++
		} else if m.LastFailure == nil {
			m.LastFailure = t
		}
		if m.Verdict == KexecUnknown {
			m.Verdict = map[bool]string{true: KexecKnownBad, false: KexecKnownGood}[t.Failed()]
		}
	}
	m.Sentence = m.say(exact)
	return m
}

func (m *KexecMemory) say(exact bool) string {
	if m.Tried == 0 {
		return "kexec: not tried on this model yet"
	}
	s := fmt.Sprintf("kexec: worked %d of %d on this model", m.Worked, m.Tried)
	if exact && m.Image != "" {
		s += " with this image"
	}
	if f := m.LastFailure; f != nil {
		s += fmt.Sprintf("; last failure %s on %s with %s: %s", f.Time.UTC().Format(time.DateOnly), f.Machine, f.Image, f.Sentence)
	}
	return s
}

// KexecStore remembers how kexec went, a bounded number of trials for each make.
type KexecStore interface {
	// PutKexecTrial keeps a trial, in place of an earlier word on the same attempt.
	PutKexecTrial(ctx context.Context, t *KexecTrial) error
	// ForgetKexecTrial takes back the word on an attempt. None was kept: nothing is amiss.
	ForgetKexecTrial(ctx context.Context, attempt string) error
	ListKexecTrials(ctx context.Context, name string) ([]KexecTrial, error) // of a make, newest first
	ForgetKexecTrials(ctx context.Context, name string) (n int, err error)  // all of a make
}

// ValidBootPath refuses what is no boot path. "" is BootAuto.
func ValidBootPath(field string, p BootPath) error {
	switch p {
	case "", BootAuto, BootKexec, BootReboot:
		return nil
	}
	return Invalid(field, "%q is no way to start the system", clip(string(p), 20)).Do("use kexec, reboot or auto")
}
