package assets

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
)

func TestFilesAreServedByTheirHashedNamesOnly(t *testing.T) {
	for name := range load().urls {
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequest("GET", URL(name), nil))
		if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("Content-Type") != contentTypes[path.Ext(name)] || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		for _, other := range []string{"/assets/" + name, "/x" + URL(name), URL(name) + ".gz"} {
			w := httptest.NewRecorder()
			if Handler().ServeHTTP(w, httptest.NewRequest("GET", other, nil)); w.Code != 404 {
				t.Errorf("%s: %d", other, w.Code)
			}
		}
	}
}

// What is not ours is what VENDORED says it is, and its licence is at hand.
func TestVendoredFilesAreWhatTheyWere(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(vendoredFrom), "\n")
	for _, l := range lines {
		name, _, _ := strings.Cut(l, " ")
		b, err := files.ReadFile("files/" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(b); !strings.HasSuffix(l, "sha256 "+hex.EncodeToString(sum[:])) {
			t.Errorf("%s has the digest %x", name, sum)
		}
	}
	if len(lines) != 2 || !strings.Contains(License, "Zero-Clause BSD") {
		t.Error("the list or the licence is incomplete")
	}
	works := Works()
	if len(works) != len(lines) || works[0].Package != "htmx.org" || works[1].Package != "htmx-ext-sse" {
		t.Fatalf("read as %+v", works)
	}
	for i, w := range works {
		if !strings.HasPrefix(lines[i], w.File+" ") || !strings.Contains(lines[i], " "+w.Version+" ") || w.License != "0BSD" {
			t.Errorf("%q is read as %+v", lines[i], w)
		}
	}
}

// The style takes nothing from elsewhere: the policy would refuse it, and the appliance has no internet.
func TestNothingComesFromElsewhere(t *testing.T) {
	for _, name := range []string{"app.css", "app.js"} {
		b, err := files.ReadFile("files/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"http://", "https://", "@import", "url(", "eval(", "innerHTML"} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
}
