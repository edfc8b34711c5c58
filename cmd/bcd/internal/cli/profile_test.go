package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/webtest"
)

const gpuYAML = `name: gpu
description: HGX hosts
drivers:
  power: redfish
  boot: {driver: ipxe}
biosSettings: {BootMode: Uefi, Cores: 64}
steps:
  commission:
    - {step: power.setPower, with: {action: "off"}, timeout: 30s}
---
name: small
kernelArgs: console=ttyS1
`

func TestProfilesGoOutAndInAsFiles(t *testing.T) {
	s := newShell(t)
	s.login()
	file := filepath.Join(t.TempDir(), "gpu.yaml")
	if err := os.WriteFile(file, []byte(gpuYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.must("", "profile", "apply", "-f", file); !strings.Contains(out, "gpu: saved") || !strings.Contains(out, "small: saved") {
		t.Errorf("applied: %s", out)
	}
	all := s.must("", "profile", "export")
	if !strings.Contains(all, "---\n") || !strings.Contains(all, "power: redfish\n") || strings.Contains(all, "updated") {
		t.Errorf("exported:\n%s", all)
	}
	before, err := s.site.Store.Profile(t.Context(), "gpu")
	if err != nil {
		t.Fatal(err)
	}
	s.must("", "profile", "delete", "gpu")
	s.must(all, "profile", "apply", "-f", "-") // what was exported is taken as it is
	after, err := s.site.Store.Profile(t.Context(), "gpu")
	if err != nil || string(after.BIOS["Cores"]) != "64" || after.Steps.Commission[0].Timeout != before.Steps.Commission[0].Timeout || after.Drivers["boot"].Driver != "ipxe" {
		t.Errorf("%+v, %v", after, err)
	}
	if one := s.must("", "profile", "export", "small"); strings.Contains(one, "gpu") || !strings.Contains(one, "console=ttyS1") {
		t.Errorf("one: %s", one)
	}
	out, err := s.try("name: bad\ndrivers: {power: nothing}\n---\nname: fine\n", "profile", "apply", "-f", "-")
	if err == nil || !strings.Contains(out, `no driver "nothing"`) || !strings.Contains(out, "fine: saved") {
		t.Errorf("a mistake: %v\n%s", err, out)
	}
	for _, in := range []string{"", "- a\n", "drivers: {}\n", "name: [\n", strings.Repeat("---\nname: a\n", maxDocuments+1)} {
		if _, err := s.try(in, "profile", "apply", "-f", "-"); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%.20q: %v", in, err)
		}
	}
	check := s.must(`{"drivers": {"power": "nothing"}}`, "profile", "check", "gpu", "-f", "-")
	if !strings.Contains(check, "drivers.power.driver") {
		t.Errorf("check: %s", check)
	}
	s.must("name: rack1\npolicy: {hardwareProfile: gpu}\n", "pool", "apply", "-f", "-")
	if out := s.must("", "pool", "export"); out != "name: rack1\npolicy:\n  hardwareProfile: gpu\n" {
		t.Errorf("pool: %s", out)
	}
	if _, err := s.try("", "profile", "delete", "gpu"); app.CodeOf(err) != app.Conflict {
		t.Errorf("a profile in use: %v", err)
	}
}

// The example of the help is a profile as it stands.
func TestTheExampleIsAProfile(t *testing.T) {
	docs, err := Documents([]byte(profileExample))
	if err != nil || len(docs) != 1 {
		t.Fatalf("%v, %v", docs, err)
	}
	raw, err := json.Marshal(docs[0])
	if err != nil {
		t.Fatal(err)
	}
	var p app.Profile
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil || len(p.Steps.Commission) != 2 || p.Drivers["acme-cooling"].Driver != "acme-bmc" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestALargeBatchIsApprovedByAnother(t *testing.T) {
	s := newShell(t)
	s.login()
	var names []string
	for i := range 6 {
		names = append(names, fmt.Sprintf("node-%d", i))
		m := &app.Machine{ID: fmt.Sprintf("m-%d", i), Name: names[i], State: app.StateReady, Labels: map[string]string{"rack": "a"}}
		if err := s.site.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	out, err := s.try("", append([]string{"machine", "release"}, names...)...)
	if e, _ := app.AsError(err); e == nil || e.Field != "confirm" || !strings.Contains(e.WayOut, "6") {
		t.Fatalf("the only operator was not asked: %v\n%s", err, out)
	}
	s.must("", "machine", "release", "--label", "rack=a", "--confirm", "6")
	s.must("", "machine", "commission", "--label", "rack=*", "--in-state", "ready", "--count", "2")
	if c := s.site.Service.Calls(); len(c) != 2 || len(c[0].IDs) != 6 || len(c[1].IDs) != 2 {
		t.Fatalf("calls %+v", c)
	}
	if _, err := s.try("", "machine", "release", "node-1", "--label", "rack=a"); ExitCode(err) != ExitUsage {
		t.Errorf("names and labels together: %v", err)
	}
	s.site.As(app.RoleOperator)
	out = s.must("", append([]string{"machine", "release"}, names...)...)
	_, id, ok := strings.Cut(out, "bcd approve ")
	if id = strings.TrimSpace(id); !ok || len(s.site.Service.Calls()) != 2 {
		t.Fatalf("it did not wait: %s", out)
	}
	if _, err := s.try("", "approve", id); app.CodeOf(err) != app.Forbidden {
		t.Errorf("the one who asked approved: %v", err)
	}
	if out := s.must("", "approval", "list"); !strings.Contains(out, id) || !strings.Contains(out, "pending") {
		t.Errorf("list: %s", out)
	}
	s.must(webtest.Password+"\n", "login", s.url, "--pin", s.pin, "-u", string(app.RoleOperator))
	if out := s.must("", "approve", id, "--reason", "planned"); !strings.Contains(out, "approved") {
		t.Errorf("approved: %s", out)
	}
	if c := s.site.Service.Calls(); len(c) != 3 || len(c[2].IDs) != 6 {
		t.Errorf("calls %+v", c)
	}
}
