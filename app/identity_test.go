package app

import "testing"

// The same GUID as a BMC sends it and as versions of ipmitool print it.
func TestUUIDSpellings(t *testing.T) {
	const u = UUID("9026e400-c075-11e1-809f-525400aabbcc")
	for _, v := range []UUID{u, "00e42690-75c0-e111-809f-525400aabbcc", "ccbbaa00-5452-9f80-e111-75c000e42690", "00aabbcc-5254-809f-e111-75c000e42690"} {
		if !u.Same(v) || !v.Same(u) {
			t.Errorf("%s and %s are one machine's", u, v)
		}
	}
	for _, v := range []UUID{"", "9026e400-c075-11e1-809f-525400aabbcd", "nonsense"} {
		if u.Same(v) || v.Same(u) || v.Same("") {
			t.Errorf("%s and %q are not one machine's", u, v)
		}
	}
}
