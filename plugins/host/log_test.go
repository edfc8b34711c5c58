package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func asIs(s string) string { return s }

func TestLinesAreTakenApart(t *testing.T) {
	for raw, want := range map[string]Line{
		"plain":                              {Level: "INFO", Message: "plain"},
		`{"level":"WARN","msg":"hot","n":7}`: {Level: "WARN", Message: "hot", Attrs: map[string]string{"n": "7"}},
		`{"level":"error","message":"x","time":"2026","a":{"b":1}}`: {Level: "ERROR", Message: "x", Attrs: map[string]string{"a": `{"b":1}`}},
		`{"level":40,"msg":"pino"}`:                                 {Level: "WARN", Message: "pino"},
		`{"level":"odd"}`:                                           {Level: "INFO", Message: "(no message)"},
		`{"msg":"cut`:                                               {Level: "INFO", Message: `{"msg":"cut`},
		"\x1b[31mred\x07\u202e":                                     {Level: "INFO", Message: `\x1b[31mred\x07\u202e`},
		"bad \xff utf":                                              {Level: "INFO", Message: `bad \xff utf`},
		`{"msg":"two\nlines level=ERROR","k\n":"\u001b"}`:           {Level: "INFO", Message: `two\x0alines level=ERROR`, Attrs: map[string]string{`k\x0a`: `\x1b`}},
	} {
		got := parseLine([]byte(raw), asIs)
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Errorf("%q gave %s, want %s", raw, a, b)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"level":"WARN","msg":"hot","n":7}`))
	f.Add([]byte("plain \x00 text"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) == 0 {
			return
		}
		l := parseLine(raw, asIs)
		for _, s := range append([]string{l.Message}, sortedKeys(l.Attrs)...) {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r\x1b\x00") || len(s) > 11*maxLine {
				t.Errorf("%q became %q", raw, s)
			}
		}
		if len(l.Attrs) > maxAttrs {
			t.Errorf("%d attributes", len(l.Attrs))
		}
	})
}

func TestLogIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	l := newLines(slog.New(slog.NewJSONHandler(&out, nil)), func() time.Time { return now }, asIs)
	var in bytes.Buffer
	for i := range 10000 {
		fmt.Fprintf(&in, "line %d\n", i)
	}
	l.drain(&in)
	kept := l.tail(1000)
	if len(kept) != lineBurst+1 || !strings.Contains(kept[lineBurst].Message, fmt.Sprint(10000-lineBurst, " lines were dropped")) {
		t.Errorf("%d lines, the last %+v", len(kept), kept[len(kept)-1])
	}
	now = now.Add(time.Second)
	l.drain(strings.NewReader(strings.Repeat("x", 100*maxLine) + "\nnext\nlast without an end"))
	kept = l.tail(3)
	if len(kept[0].Message) > 2*maxLine || !strings.Contains(kept[0].Message, "was cut") || kept[1].Message != "next" || kept[2].Message != "last without an end" {
		t.Errorf("%.200q", fmt.Sprint(kept))
	}
	for i := range 2 * keptLines {
		now = now.Add(time.Second)
		l.drain(strings.NewReader(fmt.Sprintf("%d\n", i)))
	}
	kept = l.tail(10 * keptLines)
	if len(kept) != keptLines || kept[0].Message != fmt.Sprint(keptLines) || kept[keptLines-1].Message != fmt.Sprint(2*keptLines-1) {
		t.Errorf("%d lines from %q to %q", len(kept), kept[0].Message, kept[len(kept)-1].Message)
	}
	if n := strings.Count(out.String(), "\n"); n > lineBurst+1+3+2*keptLines+2 {
		t.Errorf("%d lines were forwarded", n)
	}
}
