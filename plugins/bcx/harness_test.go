package bcx_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// pid is a driver that says in which process it runs.
func pid() driver.Definition {
	return driver.Definition{ID: "pid", Version: "1.0.0", RunsOn: driver.RunsOnSite,
		Implements: map[string]driver.Factory{"acme-pid": func(json.RawMessage) (any, error) { return pidKind{}, nil }},
		RetrySafe:  map[string][]string{"acme-pid": {"get", "exit"}}}
}

type pidKind struct{}

func (pidKind) Invoke(_ *driver.Context, op string, _ []json.RawMessage) (any, error) {
	if op == "exit" {
		os.Exit(3)
	}
	return os.Getpid(), nil
}

func TestHarness(t *testing.T) {
	t.Run("of a subtest (with a name)", func(t *testing.T) {
		d := bcx.Harness(t, pid())
		out, err := d.Invoke(driver.NewContext(t.Context()), driver.Call{Kind: "acme-pid", Operation: "get"})
		if err != nil {
			t.Fatal(err)
		}
		var theirs int
		if err := json.Unmarshal(out, &theirs); err != nil || theirs == os.Getpid() || theirs == 0 {
			t.Fatal(string(out), err)
		}
	})
}
