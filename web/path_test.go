package web

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
)

// A path that the guard lets pass has one spelling: cleaning or unescaping it again changes nothing.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/", "/api/v1/machines/m-1", "/a/../b", "/%2e%2e/x", "/a%2fb", "//x", "/a//b", "/a\\b", "/%25", "/a%00", "/é", "/.", "/..", "/...", "/discovered/00:00:5e:00:53:01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := &http.Request{URL: u}
		if cleanPath(r) != nil {
			return
		}
		p := r.URL.Path
		again, err := url.PathUnescape(p)
		if err != nil || again != p || path.Clean(p) != p || strings.ContainsAny(p, "%\\\x00") || r.URL.RawPath != "" || r.URL.EscapedPath() != p {
			t.Errorf("%q passed as %q", target, p)
		}
	})
}
