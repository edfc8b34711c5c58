package site

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/web/api"
)

// Whichever digest an image comes with is the one that is checked.
func TestTheDigestOfAnImport(t *testing.T) {
	long := strings.Repeat("a", 128)
	for want, in := range map[string]api.ImportInput{"": {}, "ab": {SHA256: "ab"}, long: {SHA512: long}} {
		if got := source(in, -1); got.Digest != want || got.Size != 0 {
			t.Errorf("%+v is checked by %q", in, got.Digest)
		}
	}
}
