package bcx

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Limits of what a plugin's stderr puts into its host's log.
const (
	maxLogLine  = 4 << 10 // bytes; what is longer is cut
	maxLogValue = 1 << 10 // bytes of one attribute
	maxLogAttrs = 16
	// maxLastLines is enough for what an interpreter says of an exception nobody caught.
	maxLastLines = 16
	maxLastLine  = 200 // bytes
)

// forwardLog passes a plugin's stderr to a log until r ends, and gives its last lines, for the message
// of a plugin that ended. Lines of JSON keep their level,
// message (msg) and attributes, which come in a group named plugin; other lines are warnings. All text is cleaned and
// bounded; of a flood, what is beyond 50 lines a second is counted and dropped.
func forwardLog(r io.Reader, log *slog.Logger) []string {
	lines := bufio.NewReaderSize(r, maxLogLine)
	var pace pace
	var end ending
	dropped := 0
	for {
		line, err := lines.ReadSlice('\n')
		if text := bytes.TrimSpace(line); len(text) > 0 {
			end.add(text)
			switch {
			case !pace.allows(time.Now()):
				dropped++
			default:
				if dropped > 0 {
					log.Warn("plugin writes too much, lines were dropped", "lines", dropped)
					dropped = 0
				}
				forwardLine(log, text)
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			if dropped > 0 {
				log.Warn("plugin wrote too much, lines were dropped", "lines", dropped)
			}
			return end.lines()
		}
	}
}

// ending keeps the last lines of a log. A plugin that writes gigabytes pays one short copy a line.
type ending struct {
	raw  [maxLastLines][]byte
	next int
}

func (e *ending) add(line []byte) {
	at := &e.raw[e.next%maxLastLines]
	*at = append((*at)[:0], line[:min(len(line), maxLastLine)]...)
	e.next++
}

func (e *ending) lines() (out []string) {
	for i := max(0, e.next-maxLastLines); i < e.next; i++ {
		out = append(out, clean(string(e.raw[i%maxLastLines]), maxLastLine))
	}
	return out
}

func forwardLine(log *slog.Logger, line []byte) {
	level, message := slog.LevelWarn, clean(string(line), maxLogValue)
	var attrs []any
	var said map[string]json.RawMessage
	if json.Unmarshal(line, &said) == nil && said != nil {
		var word string
		_ = json.Unmarshal(said["level"], &word)
		if level.UnmarshalText([]byte(word)) != nil {
			level = slog.LevelInfo
		}
		_ = json.Unmarshal(said["msg"], &word)
		message = clean(word, maxLogValue)
		for _, key := range slices.Sorted(maps.Keys(said)) {
			if key == "level" || key == "msg" || key == "time" || len(attrs) == maxLogAttrs {
				continue
			}
			attrs = append(attrs, slog.String(clean(key, 64), plainValue(said[key])))
		}
	}
	log.Log(context.Background(), level, message, slog.Group("plugin", attrs...))
}

// plainValue is a JSON value as text: a string without its quotes.
func plainValue(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	return clean(s, maxLogValue)
}
