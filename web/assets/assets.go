// Package assets holds what the browser loads: our style and script, htmx, and the mark. Each file is served under a name
// that carries its digest, and under no other, so that browsers may keep it for ever.
package assets

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

//go:embed files
var files embed.FS

// vendoredFrom has a line for each file that is not ours: the file, its npm package and version, the path in there, the
// SPDX licence, and the digest.
//
//go:embed VENDORED
var vendoredFrom string

// Vendored is a work that is not ours.
type Vendored struct {
	File    string // "htmx.min.js"
	Package string // of npm: "htmx.org"
	Version string
	License string // SPDX
}

var vendoredRE = regexp.MustCompile(`(?m)^(\S+) +(\S+) (\S+) \(npm\), \S+, (\S+), sha256 [0-9a-f]{64}$`)

// Works lists the works that are not ours.
func Works() []Vendored {
	var out []Vendored
	for _, m := range vendoredRE.FindAllStringSubmatch(vendoredFrom, -1) {
		out = append(out, Vendored{File: m[1], Package: m[2], Version: m[3], License: m[4]})
	}
	return out
}

// License is the licence of the vendored files.
//
//go:embed LICENSE.htmx
var License string

type table struct {
	urls map[string]string // file name → URL
	data map[string][]byte // hashed name → content
}

var load = sync.OnceValue(func() table {
	t := table{urls: map[string]string{}, data: map[string][]byte{}}
	entries, err := fs.ReadDir(files, "files")
	if err != nil {
		panic(err) // embedded: cannot fail
	}
	for _, e := range entries {
		b, err := fs.ReadFile(files, "files/"+e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(b)
		ext := path.Ext(e.Name())
		hashed := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		t.urls[e.Name()], t.data[hashed] = "/assets/"+hashed, b
	}
	return t
})

// URL is the address of a file. An unknown name is a programming error.
func URL(name string) string {
	u, ok := load().urls[name]
	if !ok {
		panic("no asset " + name)
	}
	return u
}

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// Handler serves the files by their hashed names.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := path.Base(r.URL.Path)
		b, ok := load().data[name]
		if !ok || r.URL.Path != "/assets/"+name {
			http.Error(w, "there is no such file", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	})
}
