package views

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// Bytes writes a size in binary units.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, units := float64(n), "KMGTPE"
	i := -1
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// Span writes a length of time in one or two units.
func Span(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// coarse writes a length of time in one unit.
func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Ago writes how long before now a time was.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if now.Sub(t) < 5*time.Second {
		return "just now"
	}
	return coarse(now.Sub(t)) + " ago"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }
func day(t time.Time) string   { return t.UTC().Format("2006-01-02 15:04") }

func stateClass(s app.State) string {
	switch s {
	case app.StateReady, app.StateDeployed:
		return "chip ok"
	case app.StateCommissioning, app.StateDeploying, app.StateReleasing:
		return "chip busy"
	case app.StateFailed:
		return "chip bad"
	case app.StateRescue, app.StateISO:
		return "chip warn"
	}
	return "chip"
}

func powerClass(p app.Power) string {
	switch p {
	case app.PowerOn:
		return "chip ok"
	case app.PowerUnknown:
		return "chip warn"
	}
	return "chip"
}

func flowClass(s workflow.State) string {
	switch s {
	case workflow.Running, workflow.Aborting:
		return "chip busy"
	case workflow.Interrupted:
		return "chip warn"
	case workflow.Done:
		return "chip ok"
	case workflow.Failed:
		return "chip bad"
	}
	return "chip"
}

func levelClass(level string) string {
	switch level {
	case "error":
		return "bad"
	case "warn":
		return "warn"
	}
	return "info"
}

// figures writes what is known of a step's progress: bytes, rate, time left.
func figures(p *workflow.Progress) []string {
	var out []string
	size := func(n int64) string { return fmt.Sprint(n) }
	if p.Unit == "bytes" {
		size = Bytes
	}
	if p.Total > 0 {
		out = append(out, fmt.Sprintf("%s of %s (%d%%)", size(p.Done), size(p.Total), min(100, p.Done*100/p.Total)))
	} else if p.Done > 0 {
		out = append(out, size(p.Done))
	}
	if p.Rate > 0 && p.Unit == "bytes" {
		out = append(out, Bytes(int64(p.Rate))+"/s")
	}
	if p.ETA > 0 {
		out = append(out, Span(time.Duration(p.ETA*float64(time.Second)))+" left")
	}
	return out
}

func took(s workflow.Step, now time.Time) string {
	switch {
	case s.Started.IsZero():
		return ""
	case s.Ended.IsZero() && s.State == workflow.StepRunning:
		return Span(now.Sub(s.Started))
	case s.Ended.IsZero():
		return ""
	}
	return Span(s.Ended.Sub(s.Started))
}

// sentence is what went wrong, with the field that it is about.
func sentence(e *app.Error) string {
	if e.Field != "" {
		return memberName(e.Field) + ": " + e.Message
	}
	return upper(e.Message)
}

// abbreviations are words of members' names that people write otherwise.
var abbreviations = map[string]string{"bios": "BIOS", "bmc": "BMC", "cidr": "CIDR", "dns": "DNS", "id": "ID", "ids": "IDs", "mac": "MAC", "macs": "MACs", "ntp": "NTP",
	"sha256": "SHA-256", "sha512": "SHA-512", "ssh": "SSH", "tftp": "TFTP", "url": "URL", "uuid": "UUID"}

// memberName writes a member of the API as words: "TFTP block size" for tftpBlockSize, "BMC address" for bmc.address. A place
// inside what a person wrote stays as it is: "links[0].mac", "biosSettings.ProcTurbo".
func memberName(member string) string {
	plain, _ := strings.CutPrefix(member, "bmc.")
	if strings.ContainsAny(plain, "[.") {
		return member
	}
	var words []string
	if plain != member {
		words = []string{"bmc"}
	}
	for i, r := range plain {
		if i == 0 || unicode.IsUpper(r) {
			words = append(words, "")
		}
		words[len(words)-1] += string(unicode.ToLower(r))
	}
	for i, w := range words {
		words[i] = cmp.Or(abbreviations[w], w)
	}
	return upper(strings.Join(words, " "))
}

// by names who asked for something: a person, or nobody, when it is part of bcd's own work.
func by(actor string) string {
	if actor == "" || actor == "system" {
		return "bcd itself"
	}
	return actor
}

func upper(s string) string {
	if strings.HasPrefix(s, "bcd ") { // a name
		return s
	}
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func shortHash(s string) string {
	if len(s) > 16 {
		return s[:16] + "…"
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// said is an event's message; a line of an agent's log without its level, which the event has, and without quotes.
func said(e app.Event) string {
	level, rest, ok := strings.Cut(e.Message, " msg=")
	if e.Kind != "agent.log" || !ok || !strings.HasPrefix(level, "level=") {
		return e.Message
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return rest
	}
	msg, err := strconv.Unquote(quoted)
	if err != nil {
		return rest
	}
	return msg + rest[len(quoted):]
}

// Live is the address of a page's stream. The mark says what the page was made of: a stream that begins, or begins again
// after the appliance was away, tells the page at once when that has changed.
func Live(path, mark string) string { return path + "?mark=" + mark }

// markTime writes when a boot passed something, counted from its start: what a BMC copies beforehand was read before it.
func markTime(seconds float64) string {
	if seconds < 0 {
		return fmt.Sprintf("%.1f s before", -seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}
