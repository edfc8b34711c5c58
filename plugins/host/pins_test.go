package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

const sumA, sumB = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

func TestPinsAreReadAsSha256sumWritesThem(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		sumA + "  acme\n":                   "acme",
		sumA + " acme":                      "acme",
		sumA + " *acme\n":                   "acme",
		sumA + "     *acme\r\n":             "acme",
		strings.ToUpper(sumA) + "  acme.v2": "acme.v2",
		"# a comment\n\n   \n" + sumA + "  b\n" + sumB + "  a\n": "a b",
		sumA + "  ../acme": "!1", sumA + "  a/b": "!1", sumA + "  a..b": "!1", sumA + "  .hidden": "!1", sumA + "  pins": "!1", sumA + "  ": "!1",
		sumA + "\tacme": "!1", sumA[1:] + "  acme": "!1", "zz" + sumA[2:] + "  acme": "!1", "acme": "!1", "\\" + sumA + "  acme": "!1",
		sumA + "  a b": "!1", sumA + "  a\x1b[2J": "!1", sumA + "  " + strings.Repeat("a", 64): "!1",
		sumA + "  bad/\n" + sumB + "  good\n": "good !1",
		// A name that stands twice is not run at all, even with the same hash.
		sumA + "  a\n" + sumB + "  b\n" + sumB + "  a\n" + sumB + "  a\n": "b !3 !4",
	} {
		pins, issues := ParsePins([]byte(text))
		var got []string
		for _, p := range pins {
			got = append(got, p.Name)
			if p.SHA256 != sumA && p.SHA256 != sumB {
				t.Errorf("%q gave the sum %q", text, p.SHA256)
			}
		}
		for _, i := range issues {
			got = append(got, "!"+string(rune('0'+i.Line)))
			if i.Message == "" || strings.ContainsRune(i.String(), 0x1b) {
				t.Errorf("%q: the issue says %q", text, i)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q gave %q, want %q", text, s, want)
		}
	}
	many := ""
	for i := range maxPlugins + 1 {
		many += sumA + "  p" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + "\n"
	}
	if pins, issues := ParsePins([]byte(many)); len(pins) != maxPlugins || len(issues) != 1 {
		t.Errorf("%d plugins and %d issues of %d lines", len(pins), len(issues), maxPlugins+1)
	}
}

func FuzzPins(f *testing.F) {
	f.Add([]byte(sumA + "  acme\n# x\n" + sumB + " *b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pins, issues := ParsePins(text)
		seen := map[string]bool{}
		for _, p := range pins {
			if CheckName(p.Name) != nil || len(p.SHA256) != 64 || seen[p.Name] || filepath.Base(p.Name) != p.Name {
				t.Errorf("pin %+v", p)
			}
			seen[p.Name] = true
		}
		for _, i := range issues {
			if printable(i.String()) != i.String() {
				t.Errorf("issue %q", i)
			}
		}
	})
}

func TestEditingPinsKeepsTheRest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, PinsName)
	if err := os.WriteFile(path, []byte("# ours\n"+sumA+" *one\nnonsense\n"+sumB+"  two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(src, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for _, name := range []string{"one", "three"} {
		if p, err := Add(t.Context(), dir, name, src); err != nil || p != (Pin{name, hello}) {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if err := Remove(dir, "two"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "# ours\n" + hello + "  one\nnonsense\n" + hello + "  three\n"; err != nil || string(got) != want {
		t.Errorf("the pins are\n%s, %v, want\n%s", got, err, want)
	}
	if st, err := os.Stat(filepath.Join(dir, "one")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("the plugin's file is %v, %v", st, err)
	}
	if err := Remove(dir, "two"); app.CodeOf(err) != app.NotFound {
		t.Errorf("removing what is not there gave %v", err)
	}
	for _, name := range []string{"../x", "", "a/b", PinsName} {
		if _, err := Add(t.Context(), dir, name, src); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("adding %q gave %v", name, err)
		}
		if err := Remove(dir, name); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("removing %q gave %v", name, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What others may write, what is a link and what is no file is refused, whichever of the three it is.
func TestWhatOthersMayWriteIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(b *bench) error{
		"directory":        func(b *bench) error { return os.Chmod(b.dir, 0o777) },
		"group directory":  func(b *bench) error { return os.Chmod(b.dir, 0o775) },
		"pins":             func(b *bench) error { return os.Chmod(filepath.Join(b.dir, PinsName), 0o666) },
		"binary":           func(b *bench) error { return os.Chmod(filepath.Join(b.dir, "acme"), 0o757) },
		"binary is a link": func(b *bench) error { return link(filepath.Join(b.dir, "acme")) },
		"pins is a link":   func(b *bench) error { return link(filepath.Join(b.dir, PinsName)) },
		"binary is a directory": func(b *bench) error {
			return os.Rename(b.t.TempDir(), filepath.Join(b.dir, "acme"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.file("acme", "#!/bin/sh\nexit 3\n")
			if name == "binary is a directory" {
				if err := os.Remove(filepath.Join(b.dir, "acme")); err != nil {
					t.Fatal(err)
				}
			}
			if err := spoil(b); err != nil {
				t.Fatal(err)
			}
			b.start()
			s := b.status("acme")
			if strings.HasPrefix(name, "binary") {
				if s.State != Refused || s.Reason == "" || s.PID != 0 {
					t.Errorf("the plugin stands at %+v", s)
				}
				return
			}
			if s.Name != "" || len(b.Issues()) != 1 {
				t.Errorf("the plugin stands at %+v, issues %v", s, b.Issues())
			}
		})
	}
}

// link replaces a file by a link to it.
func link(path string) error {
	if err := os.Rename(path, path+".real"); err != nil {
		return err
	}
	return os.Symlink(path+".real", path)
}

func TestNoPinsFileRunsNothingAndSaysSo(t *testing.T) {
	b := newBench(t).start()
	if len(b.List()) != 0 || len(b.Issues()) != 1 || !strings.Contains(b.Issues()[0].Message, "no file") {
		t.Errorf("%v, %v", b.List(), b.Issues())
	}
}
