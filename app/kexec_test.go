package app

import (
	"strings"
	"testing"
	"time"
)

func TestRecallKexec(t *testing.T) {
	day := func(d int) time.Time { return time.Date(2026, 1, d, 12, 0, 0, 0, time.UTC) }
	trial := func(d int, image string, o KexecOutcome) KexecTrial {
		return KexecTrial{Make: "Acme R1", Profile: "fast", Image: image, Machine: "node1", Outcome: o, Sentence: "it said nothing", Time: day(d)}
	}
	worked, silent, refused := KexecWorked, KexecSilent, KexecRefused
	tests := []struct {
		name   string
		trials []KexecTrial // newest first
		image  string
		want   string
		says   string
	}{
		{"never tried", nil, "debian", KexecUnknown, "kexec: not tried on this model yet"},
		{"worked", []KexecTrial{trial(3, "debian", worked), trial(2, "debian", worked), trial(1, "debian", worked)}, "debian", KexecKnownGood, "worked 3 of 3 on this model with this image"},
		{"failed last", []KexecTrial{trial(2, "debian", silent), trial(1, "debian", worked)}, "debian", KexecKnownBad, "worked 1 of 2 on this model with this image; last failure 2026-01-02 on node1 with debian: it said nothing"},
		{"failed and worked since", []KexecTrial{trial(2, "debian", worked), trial(1, "debian", silent)}, "debian", KexecKnownGood, "worked 1 of 2"},
		{"another image worked", []KexecTrial{trial(1, "ubuntu", worked)}, "debian", KexecKnownGood, "worked 1 of 1 on this model"},
		{"another image hung", []KexecTrial{trial(1, "ubuntu", silent)}, "debian", KexecKnownBad, "worked 0 of 1"},
		{"another image had no entry", []KexecTrial{trial(1, "windows", refused)}, "debian", KexecUnknown, "not tried"},
		{"this image had no entry, others work", []KexecTrial{trial(2, "debian", worked), trial(1, "windows", refused)}, "windows", KexecKnownBad, "worked 0 of 1 on this model with this image"},
		{"all images", []KexecTrial{trial(2, "debian", worked), trial(1, "windows", refused)}, "", KexecKnownGood, "worked 1 of 2 on this model; last failure"},
	}
	for _, tt := range tests {
		m := RecallKexec("Acme R1", "fast", tt.image, tt.trials)
		if m.Verdict != tt.want || !strings.Contains(m.Sentence, tt.says) {
			t.Errorf("%s: %s, %q", tt.name, m.Verdict, m.Sentence)
		}
	}
	if m := RecallKexec("Acme R1", "slow", "debian", []KexecTrial{trial(1, "debian", silent)}); m.Verdict != KexecKnownBad {
		t.Errorf("another profile of the make: %s", m.Verdict)
	}
	if a, b := KexecMake(&Machine{ID: "m-1", Vendor: "Acme", Model: "R1"}), KexecMake(&Machine{ID: "m-2", Vendor: "Acme"}); a != "Acme R1" || b != "machine m-2" {
		t.Errorf("%q %q", a, b)
	}
}
