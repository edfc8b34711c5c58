package bmctest

import (
	"slices"
	"testing"

	"github.com/better-compute/bcd/plugins/driver"
)

// noMedia reports, with a line in the log, a driver without virtual media.
func (b BMC) noMedia(t *testing.T) bool {
	if slices.Contains(b.Driver.Kinds(), "virtual-media") {
		return false
	}
	t.Log("left out: this driver has no virtual media")
	return true
}

// virtualMedia inserts and ejects. Each may be repeated, and an insertion takes the place of another image.
func virtualMedia(t *testing.T, b BMC) {
	if b.noMedia(t) {
		return
	}
	for _, step := range []string{"eject []", "insert 0", "insert 0", "insert 1", "eject []", "eject []", "insert 0"} {
		switch step {
		case "insert 0":
			b.must(t, "virtual-media.insert", `["`+b.Images[0]+`"]`)
		case "insert 1":
			b.must(t, "virtual-media.insert", `{"iso":"`+b.Images[1]+`"}`)
		default:
			b.must(t, "virtual-media.eject", "[]")
		}
	}
	b.must(t, "management.setBootDevice", `["cd"]`)
	b.wantPower(t, "on")
}

func badImages(t *testing.T, b BMC) {
	if b.noMedia(t) {
		return
	}
	for _, args := range []string{`[]`, `[7]`, `[""]`, `["a.iso"]`, `["ftp://192.0.2.1/a.iso"]`, `["http://user:secret@192.0.2.1/a.iso"]`, `["http:///a.iso"]`, `["http://192.0.2.1/a.iso","more"]`} {
		b.refuses(t, "virtual-media.insert", args, driver.CodeInvalidArgs)
	}
	b.refuses(t, "virtual-media.open", "[]", driver.CodeUnsupported)
}
