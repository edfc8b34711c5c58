package drivers

import (
	"cmp"
	"strconv"
	"strings"
)

// compareVersions orders semantic versions (semver.org, item 11). Build metadata is ignored. Both must be well formed,
// which driver.Define has checked.
func compareVersions(a, b string) int {
	coreA, preA := splitVersion(a)
	coreB, preB := splitVersion(b)
	for i := range 3 {
		if c := cmp.Compare(coreA[i], coreB[i]); c != 0 {
			return c
		}
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1 // a release is above its pre-releases
	case preB == "":
		return -1
	}
	return comparePre(strings.Split(preA, "."), strings.Split(preB, "."))
}

func splitVersion(v string) (core [3]uint64, pre string) {
	v, _, _ = strings.Cut(v, "+")
	v, pre, _ = strings.Cut(v, "-")
	for i, part := range strings.SplitN(v, ".", 3) {
		core[i], _ = strconv.ParseUint(part, 10, 64)
	}
	return core, pre
}

// comparePre compares pre-release identifiers: numbers by value and below words, fewer below more.
func comparePre(a, b []string) int {
	for i := range min(len(a), len(b)) {
		na, errA := strconv.ParseUint(a[i], 10, 64)
		nb, errB := strconv.ParseUint(b[i], 10, 64)
		c := 0
		switch {
		case errA == nil && errB == nil:
			c = cmp.Compare(na, nb)
		case errA == nil:
			c = -1
		case errB == nil:
			c = 1
		default:
			c = cmp.Compare(a[i], b[i])
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}
