package bcx

import (
	"os/exec"
	"strings"
	"testing"
)

// TestClosure holds what a plugin links: the contract with its JSON Schema compiler, the wire, gRPC, and what these need.
func TestClosure(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/better-compute/bcd/"
	allowed := []string{
		module + "plugins/bcx", module + "plugins/driver", module + "proto/bettercompute/driver/v1",
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc/status",
		"github.com/santhosh-tekuri/jsonschema/v6", "golang.org/x/net/", "golang.org/x/sys/", "golang.org/x/text/",
	}
	for _, p := range strings.Fields(string(out)) {
		if !strings.Contains(strings.SplitN(p, "/", 2)[0], ".") || strings.HasPrefix(p, "vendor/") {
			continue // the standard library
		}
		ok := false
		for _, a := range allowed {
			ok = ok || p == strings.TrimSuffix(a, "/") || strings.HasPrefix(p, strings.TrimSuffix(a, "/")+"/")
		}
		if !ok || strings.Contains(p, "bcxtest") || p == "testing" {
			t.Errorf("a plugin would link %s", p)
		}
	}
	if strings.Contains("\n"+string(out), "\ntesting\n") {
		t.Error("a plugin would link testing")
	}
}
