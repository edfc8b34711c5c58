package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// A publisher that states SHA-512 alone, as Debian's cloud images do, is taken at its word as one that states SHA-256.
func TestImagesComeWithEitherDigest(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	short, long := strings.Repeat("Ab", 32), strings.Repeat("aB", 64)
	for name, c := range map[string]struct{ body, sha256, sha512 string }{
		"sha-256": {`{"name":"a","url":"https://images.example/a","sha256":"` + short + `"}`, strings.ToLower(short), ""},
		"sha-512": {`{"name":"b","url":"https://images.example/b","sha512":"` + long + `"}`, "", strings.ToLower(long)},
	} {
		if w := x.Do("POST", "/api/v1/images", op, c.body); w.Code != http.StatusAccepted || x.Catalog.In.SHA256 != c.sha256 || x.Catalog.In.SHA512 != c.sha512 {
			t.Errorf("%s: %d %s, asked %+v", name, w.Code, w.Body, x.Catalog.In)
		}
	}
	form := func(name, digest string) string {
		return url.Values{"form": {"import"}, "name": {name}, "url": {"https://images.example/c"}, "sha256": {digest}}.Encode()
	}
	for name, c := range map[string]struct{ digest, sha256, sha512 string }{"c": {" " + short + " ", strings.ToLower(short), ""}, "d": {long + "\n", "", strings.ToLower(long)}} {
		if w := x.Do("POST", "/images/import", op, form(name, c.digest)); w.Code != http.StatusSeeOther || x.Catalog.In.SHA256 != c.sha256 || x.Catalog.In.SHA512 != c.sha512 {
			t.Errorf("by the form: %d, asked %+v", w.Code, x.Catalog.In)
		}
	}
}
