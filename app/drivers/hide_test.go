package drivers

import "testing"

func TestHideKeys(t *testing.T) {
	for args, want := range map[string]string{
		`["http://192.0.2.1:7480/boot/abc_DEF-9/boot.iso"]`: `["http://192.0.2.1:7480/boot/KEY/boot.iso"]`,
		`["http://192.0.2.1/isos/debian.iso"]`:              `["http://192.0.2.1/isos/debian.iso"]`,
		`["pxe",{}]`:                                        `["pxe",{}]`, ``: ``,
	} {
		if got := string(hideKeys([]byte(args))); got != want {
			t.Errorf("%s became %s", args, got)
		}
	}
}
