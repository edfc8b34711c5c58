package agent

import (
	"regexp"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// What a ramdisk may advertise: it is a stranger with a token.
const (
	maxDrivers = 16
	maxKinds   = 32 // of one driver
)

var (
	labelDriverRE  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	labelVersionRE = regexp.MustCompile(`^[0-9A-Za-z.+-]{1,64}$`)
	labelKindRE    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
)

// labels are those of a ramdisk's drivers: bc.dev/driver.ID=VERSION and bc.dev/driver-kind.ID.KIND=1. What is malformed is
// left out.
func labels(all []agentv1.Advertised) map[string]string {
	out := map[string]string{}
	for _, d := range all[:min(len(all), maxDrivers)] {
		if !labelDriverRE.MatchString(d.ID) || !labelVersionRE.MatchString(d.Version) {
			continue
		}
		out["bc.dev/driver."+d.ID] = d.Version
		n := 0
		for kind := range d.Operations {
			if labelKindRE.MatchString(kind) && n < maxKinds {
				out["bc.dev/driver-kind."+d.ID+"."+kind] = "1"
				n++
			}
		}
	}
	return out
}
