package host

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// planted is a password with something of everything.
const planted = `Pl4nted/"pw"+<ü> &x`

// writings are the ways in which a plugin may write a value.
func writings(v string) map[string]string {
	html, _ := json.Marshal(v)
	return map[string]string{
		"plain":                       v,
		"in a word":                   "xx" + v + "yy",
		"in JSON":                     string(html),
		"in JSON, without HTML":       `"` + inJSON(v, false) + `"`,
		"in a message of JSON":        `{"level":"INFO","msg":` + string(html) + `}`,
		"in an attribute of JSON":     `{"msg":"x","a":` + string(html) + `}`,
		"in an object in JSON":        `{"msg":"x","a":{"b":[` + string(html) + `]}}`,
		"in JSON with its own escape": `{"msg":"` + escaped(v) + `"}`,
		"in a query":                  "https://192.0.2.1/?p=" + url.QueryEscape(v),
		"in a path":                   "https://192.0.2.1/" + url.PathEscape(v),
		"in base64":                   base64.StdEncoding.EncodeToString([]byte(v)),
		"in base64 for URLs":          base64.RawURLEncoding.EncodeToString([]byte(v)),
		"in a header":                 "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+v)),
		"in a header of root":         "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+v)),
		"in a header of a user":       "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+v)),
		"in hexadecimal digits":       fmt.Sprintf("%x", v),
		"where a line is cut":         strings.Repeat("x", maxLine-5) + v,
		"where a value is cut":        `{"msg":"x","a":"` + strings.Repeat("x", maxValue-5) + escaped(v) + `"}`,
	}
}

// escaped writes each character of a string as JSON may: by its number.
func escaped(v string) string {
	var b strings.Builder
	for _, r := range v {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

func TestSecretsAreTakenOutOfWhatAPluginSays(t *testing.T) {
	for name, said := range writings(planted) {
		var out bytes.Buffer
		var s secrets
		l := newLines(slog.New(slog.NewTextHandler(&out, nil)), time.Now, s.hide)
		s.add("another")
		s.add(planted)
		l.drain(strings.NewReader(said + "\nnothing else\n"))
		kept, err := json.Marshal(l.tail(10))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(kept), out.String()} {
			for _, never := range []string{"Pl4nt", "506c346e", "UGw0bnR", "bnRlZC8"} {
				if strings.Contains(text, never) {
					t.Errorf("%s: %q is in %.300s", name, never, text)
				}
			}
		}
		if !strings.Contains(string(kept), hidden[:5]) || !strings.Contains(string(kept), "nothing else") {
			t.Errorf("%s: kept %.300s", name, kept)
		}
	}
}

// Objects, keys of several lines and much of both.
func TestWhatIsLookedFor(t *testing.T) {
	var s secrets
	s.add(`{"username":"operator7","password":"Gr33n-door"}`)
	s.add("-----BEGIN KEY-----\nMIIabcdefgh\n-----END KEY-----\n")
	s.add("ab")
	s.add("")
	for said, want := range map[string]string{
		"operator7 with Gr33n-door":    hidden + " with " + hidden,
		"line MIIabcdefgh of it":       "line " + hidden + " of it",
		"ab stands in every other tab": "ab stands in every other tab",
		"nothing":                      "nothing",
	} {
		if got := s.hide(said); got != want {
			t.Errorf("%q became %q, want %q", said, got, want)
		}
	}
	for i := range 2 * keptSecrets {
		s.add(fmt.Sprintf("value-%d", i))
	}
	if len(s.values) != keptSecrets || s.hide("value-511 value-0") != hidden+" value-0" {
		t.Errorf("%d values are kept: %q", len(s.values), s.hide("value-511 value-0"))
	}
}

// A value that stands inside another does not leave the rest of that one.
func TestTheLongerSecretIsHiddenFirst(t *testing.T) {
	var s secrets
	s.add("pass")
	s.add("password-of-all")
	if got := s.hide("password-of-all pass"); got != hidden+" "+hidden {
		t.Errorf("got %q", got)
	}
}

// What a real plugin is handed is in nothing that is kept or shown of what it says.
func TestAPluginCannotTellItsSecrets(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0").start()
	ctx := driver.NewContext(t.Context())
	ctx.Secrets = driver.SecretMap{"password": planted}
	var told []driver.Progress
	ctx.OnProgress = func(p driver.Progress) { told = append(told, p) }
	_, err := b.reg.get("alpha@1.0.0").Invoke(ctx, driver.Call{Kind: "acme-test", Operation: "tell", Args: []byte("[]")})
	wantCode(t, err, "bmc-error", false)
	b.await("a", func(Status) bool { l, _ := b.Logs("a", 10); return len(l) >= 2 })
	lines, lerr := b.Logs("a", 10)
	kept, jerr := json.Marshal([]any{lines, told, err.Error()})
	if lerr != nil || jerr != nil || len(told) != 1 {
		t.Fatal(lerr, jerr, told)
	}
	for where, text := range map[string]string{"what is shown": string(kept), "the log": b.logs.all()} {
		if strings.Contains(text, "Pl4nted") || strings.Contains(text, "bnRlZC8") || !strings.Contains(text, hidden) {
			t.Errorf("%s: %s", where, text)
		}
	}
}

func FuzzSecrets(f *testing.F) {
	f.Add(planted, "x")
	f.Add("abc", "\xff\x00")
	f.Fuzz(func(t *testing.T, value, around string) {
		if len(value) < shortSecret || len(value) > longSecret || strings.Contains(hidden, value) || strings.Contains(around, value) {
			return
		}
		var s secrets
		s.add(value)
		if got := s.hide(value); strings.Contains(got, value) {
			t.Errorf("%q became %q", value, got)
		}
	})
}
