package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of what a plugin may write to its standard error.
const (
	maxLine   = 4 << 10 // bytes of one line; the rest of it is dropped
	keptLines = 500     // for people, per plugin
	lineRate  = 50      // lines a second that are forwarded in the long run
	lineBurst = 200     // lines at once
	maxAttrs  = 16      // attributes of one line
	maxValue  = 512     // bytes of an attribute's value
)

// Line is a line of a plugin's log, made harmless.
type Line struct {
	Time    time.Time         `json:"time"`  // when it arrived
	Level   string            `json:"level"` // "DEBUG", "INFO", "WARN", "ERROR"
	Message string            `json:"message"`
	Attrs   map[string]string `json:"attrs,omitempty"`
}

// lines takes a plugin's standard error apart: it forwards what the plugin says at a bounded rate, and keeps the last of
// it. It always reads on, so that a plugin that writes without end neither stands still nor fills memory.
type lines struct {
	log *slog.Logger
	now func() time.Time
	// hide takes secrets out of a text that is not clipped yet.
	hide func(string) string

	mu      sync.Mutex
	kept    []Line // a ring, once full
	next    int    // where the ring is written next
	tokens  float64
	at      time.Time // when tokens was right
	dropped int       // lines since the last forwarded one
}

func newLines(log *slog.Logger, now func() time.Time, hide func(string) string) *lines {
	return &lines{log: log, now: now, hide: hide, tokens: lineBurst, at: now()}
}

// drain reads until the end of r.
func (l *lines) drain(r io.Reader) {
	buf := make([]byte, 32<<10)
	var line []byte
	cut := false
	for {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			part, after, ended := bytes.Cut(rest, []byte("\n"))
			rest = after
			room := maxLine + maxForm - len(line) // a secret must not be cut before it is seen
			cut = cut || len(part) > maxLine-len(line)
			line = append(line, part[:min(len(part), room)]...)
			if ended {
				l.take(line, cut)
				line, cut = line[:0], false
			}
		}
		if err != nil {
			if len(line) > 0 {
				l.take(line, cut)
			}
			l.tell()
			return
		}
	}
}

// take handles one line.
func (l *lines) take(raw []byte, cut bool) {
	if raw = bytes.TrimRight(raw, "\r"); len(raw) == 0 {
		return
	}
	if !l.admit() {
		return
	}
	line := parseLine(raw, l.hide)
	if cut {
		line.Message += " … (the line was cut)"
	}
	l.add(line)
}

// admit spends a token of the rate, or counts the line as dropped.
func (l *lines) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.tokens = min(lineBurst, l.tokens+now.Sub(l.at).Seconds()*lineRate)
	l.at = now
	if l.tokens < 1 {
		l.dropped++
		return false
	}
	l.tokens--
	return true
}

// add forwards and keeps a line, after telling what was dropped before it.
func (l *lines) add(line Line) {
	l.tell()
	l.keep(line)
}

// tell says how many lines were dropped since it last did.
func (l *lines) tell() {
	l.mu.Lock()
	n := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	if n > 0 {
		l.keep(Line{Level: slog.LevelWarn.String(), Message: fmt.Sprintf("%d lines were dropped: the plugin writes more than %d a second", n, lineRate)})
	}
}

func (l *lines) keep(line Line) {
	line.Time = l.now().UTC()
	l.mu.Lock()
	if len(l.kept) < keptLines {
		l.kept = append(l.kept, line)
	} else {
		l.kept[l.next] = line
		l.next = (l.next + 1) % keptLines
	}
	l.mu.Unlock()
	attrs := make([]slog.Attr, 0, len(line.Attrs))
	for _, k := range sortedKeys(line.Attrs) {
		attrs = append(attrs, slog.String(k, line.Attrs[k]))
	}
	l.log.LogAttrs(context.Background(), levelOf(line.Level), line.Message, slog.GroupAttrs("said", attrs...))
}

// tail gives the last n lines, oldest first.
func (l *lines) tail(n int) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Concat(l.kept[l.next:], l.kept[:l.next])
	return all[max(0, len(all)-n):]
}

// parseLine reads a JSON object with "level", "msg" or "message", and attributes; anything else is a message. hide is applied
// before anything is cut, to the line and, where it is JSON, to what its strings say.
func parseLine(raw []byte, hide func(string) string) Line {
	clipTo := func(s string, limit int) string { return clipTo(hide(s), limit) }
	var object map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &object) != nil {
		return Line{Level: slog.LevelInfo.String(), Message: clipTo(string(raw), maxLine)}
	}
	take := func(keys ...string) string {
		for _, k := range keys {
			if v, ok := object[k]; ok {
				delete(object, k)
				return text(v)
			}
		}
		return ""
	}
	line := Line{Level: levelOf(take("level", "lvl", "severity")).String(), Message: clipTo(take("msg", "message"), maxLine)}
	take("time", "ts", "timestamp")
	for _, k := range sortedKeys(object) {
		if len(line.Attrs) == maxAttrs {
			break
		}
		if line.Attrs == nil {
			line.Attrs = map[string]string{}
		}
		line.Attrs[clipTo(k, 64)] = clipTo(text(object[k]), maxValue)
	}
	line.Message = cmp.Or(line.Message, "(no message)")
	return line
}

// text is a JSON value for people: a string's content, else the JSON itself.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// levelOf reads a level's name, or the numbers that JavaScript loggers use (30 is info). It is info when it says nothing
// known.
func levelOf(s string) slog.Level {
	switch strings.ToLower(s) {
	case "trace", "debug", "10", "20":
		return slog.LevelDebug
	case "warn", "warning", "40":
		return slog.LevelWarn
	case "error", "fatal", "panic", "critical", "50", "60":
		return slog.LevelError
	}
	return slog.LevelInfo
}

func clipTo(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return printable(s)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
