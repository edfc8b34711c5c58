package site_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// refusesImages wants an import from each address to fail because nothing is fetched from there, and nothing else.
func (r *rig) refusesImages(hosts ...string) {
	r.t.Helper()
	for i, host := range hosts {
		in := api.FetchInput{Name: "image-" + string(rune('a'+i)), URL: "http://" + host + "/image", SHA256: strings.Repeat("ab", 32)}
		var im app.Image
		r.must(http.MethodPost, "/api/v1/images", in, &im)
		r.eventually("the import from "+host+" ended", func() bool {
			r.must(http.MethodGet, "/api/v1/images/"+im.ID, nil, &im)
			return im.State != "importing"
		})
		if im.State != "failed" || !strings.Contains(im.Reason, "is an address that nothing is fetched from") || !strings.Contains(im.Reason, "from another host") {
			r.t.Errorf("the import from %s is %s: %s", host, im.State, im.Reason)
		}
		r.must(http.MethodDelete, "/api/v1/images/"+im.ID, nil, nil)
	}
}

// Nothing is fetched for a user from where he could not get it himself: from a BMC, however its address is written, or from
// this appliance. BMCs are known from the moment they are enrolled, also while their driver is down, and after a restart.
func TestNothingIsFetchedFromBMCs(t *testing.T) {
	t.Parallel()
	r := withPlugin(t)
	r.start("")
	r.plugin(running)
	r.enrollsNode9() // 192.0.2.99
	in := api.EnrollInput{Name: "node7", MACs: []app.MAC{"00:00:5e:00:53:97"}, Force: true, BMC: &api.BMCInput{Driver: "acme", Address: "bmc7.invalid",
		Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}}}
	r.must(http.MethodPost, "/api/v1/machines", in, nil)
	bmcs := []string{"192.0.2.99", "192.0.2.99:8080", "[::ffff:192.0.2.99]", "bmc7.invalid", "BMC7.invalid.:443"}
	r.refusesImages(append(bmcs, "127.0.0.1", "[::1]:8443", "169.254.169.254", "0.0.0.0")...)
	r.stop()
	r.hold()
	r.start("")
	r.refusesImages(bmcs...)
	r.letGo()
}
