package host

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/better-compute/bcd/plugins/driver"
)

// Limits of what is looked for in a plugin's words.
const (
	keptSecrets = 256     // values of a plugin, the latest
	shortSecret = 3       // bytes; what is shorter stands in every other word
	longSecret  = 4 << 10 // bytes of a value, or of one of its lines, that is looked for
	shortPart   = 8       // bytes of a line of a value, and of a part of its base64
	maxForm     = 4*longSecret + 64
)

// hidden stands where a secret stood.
const hidden = "[secret]"

// secrets are the values that were handed to a plugin, so that it can be kept from telling them: as they are, in JSON, in a
// URL, in hexadecimal digits, and in base64, also as a part of something longer.
type secrets struct {
	mu     sync.Mutex
	values []string // oldest first
	forms  *strings.Replacer
}

// note adds the values of a call, before it is made.
func (s *secrets) note(ctx *driver.Context) {
	named, ok := ctx.Secrets.(interface{ Names() []string })
	if !ok {
		return // a plugin is handed nothing else
	}
	for _, name := range named.Names() {
		if v, err := ctx.Secrets.Resolve(ctx, name); err == nil {
			s.add(v)
		}
	}
}

func (s *secrets) add(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.values, value); i >= 0 {
		s.values = append(slices.Delete(s.values, i, i+1), value)
		return
	}
	s.values = append(s.values, value)
	s.values = s.values[max(0, len(s.values)-keptSecrets):]
	s.forms = nil
}

// hide takes every value that was noted out of a text.
func (s *secrets) hide(text string) string {
	s.mu.Lock()
	if s.forms == nil {
		s.forms = replacer(s.values)
	}
	r := s.forms
	s.mu.Unlock()
	return r.Replace(text)
}

// replacer hides the values in all their forms, longer ones first.
func replacer(values []string) *strings.Replacer {
	var all []string
	for _, v := range values {
		for _, part := range parts(v) {
			all = append(all, forms(part)...)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	all = slices.Compact(all)
	pairs := make([]string, 0, 2*len(all))
	for _, f := range all {
		pairs = append(pairs, f, hidden)
	}
	return strings.NewReplacer(pairs...)
}

// parts are a value, the members of one that is an object of strings, and the lines of one that has several.
func parts(value string) (out []string) {
	var object map[string]string
	if strings.HasPrefix(value, "{") && json.Unmarshal([]byte(value), &object) == nil {
		for _, v := range object {
			out = append(out, parts(v)...)
		}
	}
	if strings.Contains(value, "\n") {
		for line := range strings.Lines(value) {
			if line = strings.TrimRight(line, "\r\n"); len(line) >= shortPart && len(line) <= longSecret {
				out = append(out, line)
			}
		}
	}
	if len(value) >= shortSecret && len(value) <= longSecret {
		out = append(out, value)
	}
	return out
}

// forms are the ways in which a value may be written.
func forms(v string) []string {
	out := []string{v, url.QueryEscape(v), url.PathEscape(v), strings.ReplaceAll(url.QueryEscape(v), "+", "%20"), printable(v)}
	out = append(out, inJSON(v, true), inJSON(v, false))
	if h := hex.EncodeToString([]byte(v)); len(h) >= shortPart {
		out = append(out, h, strings.ToUpper(h))
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		out = append(out, e.EncodeToString([]byte(v)))
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 { // bytes of what stands before it, as the user name in an HTTP header
			if p := inner(e, v, before); len(p) >= shortPart {
				out = append(out, p)
			}
		}
	}
	return slices.DeleteFunc(out, func(f string) bool { return len(f) < shortSecret })
}

// inner is the part of a base64 text that only v decides, when before more bytes stand before it.
func inner(e *base64.Encoding, v string, before int) string {
	text := e.EncodeToString(append(make([]byte, before), v...))
	first := (before*8 + 5) / 6
	last := (before + len(v)) * 8 / 6
	if first >= last {
		return ""
	}
	return text[first:last]
}

// inJSON is v inside a JSON string, by an encoder that escapes HTML or by one that does not.
func inJSON(v string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(v) != nil {
		return v
	}
	s := strings.TrimSuffix(b.String(), "\n")
	return s[1 : len(s)-1]
}

// quiet is a call's context whose progress tells no secret.
func (s *secrets) quiet(ctx *driver.Context) *driver.Context {
	tell := ctx.OnProgress
	if tell == nil {
		return ctx
	}
	c := *ctx
	c.OnProgress = func(p driver.Progress) {
		p.Phase, p.Message = s.hide(p.Phase), s.hide(p.Message)
		tell(p)
	}
	return &c
}

// refusal is a plugin's error without secrets.
func (s *secrets) refusal(err error) error {
	if err == nil {
		return nil
	}
	e := driver.AsError(err)
	said := s.hide(e.Message)
	if said == e.Message {
		return err
	}
	out := driver.Errorf(e.Code, "%s", said)
	out.Retryable = e.Retryable
	return out
}
