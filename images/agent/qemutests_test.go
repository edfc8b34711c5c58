package agent_test

import (
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/agenttest"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/agentapi"
)

// streams serves what the throughput test receives, and gives its address as the guest sees it.
func streams(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(agentapi.Stream())
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return "http://10.0.2.2:" + port
}

// commissioned makes every commissioning test in the guest: an NVMe disk that tells its health, a SCSI and a virtio one that
// cannot, one port, two processors, u-root's shell.
func commissioned(t *testing.T, site *agenttest.Site) {
	t.Helper()
	script := `echo "on $(uname -m), $(pidof gosh 2>/dev/null)"; for i in a b c; do echo "$i"; done
if [ -d /sys/class/nvme/nvme0 ]; then echo '{"result":"pass","values":{"disks":3},"message":"the NVMe disk is there"}'; else exit 1; fi`
	// Of all that sleep only its own is left: what the script before it had started was killed with it.
	alone := `sleep 1000 &
n=0
while [ $n = 0 ]; do
	for p in /proc/[0-9]*; do
		comm=
		read comm <$p/comm
		if [ "$comm" = sleep ]; then n=$((n+1)); fi
	done
done
echo "$n sleep"
[ $n = 1 ]`
	for i, c := range []struct {
		order   agentv1.Test
		result  string
		message string
		values  string // a part of one
	}{
		{agentv1.Test{Test: "link"}, agentv1.TestPassed, "", "with a link"},
		{agentv1.Test{Test: "smart"}, agentv1.TestPassed, "", "life used up"},
		{agentv1.Test{Test: "throughput", With: map[string]float64{"seconds": 3, "megabytes": 32, "minMBps": 0.1}}, agentv1.TestPassed, "", "rate"},
		{agentv1.Test{Test: "cpu", With: map[string]float64{"seconds": 2}}, agentv1.TestPassed, "", "slowest processor"},
		{agentv1.Test{Test: "disk-read", With: map[string]float64{"seconds": 2}}, agentv1.TestPassed, "", "rate"},
		{agentv1.Test{Test: "memory", With: map[string]float64{"percent": 20}}, agentv1.TestPassed, "", "not reached"},
		{agentv1.Test{Test: "script", Script: script, Seconds: 60}, agentv1.TestPassed, "the NVMe disk is there", "disks"},
		{agentv1.Test{Test: "script", Script: "sleep 1000 & sleep 1000", Seconds: 2}, agentv1.TestError, "was killed", ""},
		{agentv1.Test{Test: "script", Script: alone, Seconds: 120}, agentv1.TestPassed, "", ""},
	} {
		id := fmt.Sprintf("test-%d", i)
		site.Send(site.Command(id, agentv1.KindTest, c.order))
		var r agentv1.TestResult
		decode(t, site.Result(id), &r)
		t.Logf("%+v", r)
		named := c.values == ""
		for _, v := range r.Values {
			named = named || strings.Contains(v.Subject+" "+v.Name, c.values)
		}
		if r.Result != c.result || !strings.Contains(r.Message, c.message) || !named {
			t.Errorf("%s: %s (%s)", c.order.Test, r.Result, r.Message)
		}
	}
}
