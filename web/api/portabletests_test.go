package api

import (
	"encoding/json"
	"testing"

	"github.com/better-compute/bcd/app"
)

// An empty list of tests means none, and stays one on its way out and in; no list means those of the catalog.
func TestProfilesKeepTheirTests(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                   `null`,
		`{"commissioning":[]}`: `[]`,
		`{"commissioning":[{"test":"script","script":"exit 0\n","timeout":"1m0s"},{"test":"cpu","with":{"seconds":5}}]}`: `[{"script":"exit 0\n","test":"script","timeout":"1m0s"},{"test":"cpu","with":{"seconds":5}}]`,
	} {
		var in ProfileInput
		if err := json.Unmarshal([]byte(text), &in); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(app.Profile{Name: "acme", Commissioning: in.Tests})
		if err != nil {
			t.Fatal(err)
		}
		var p app.Profile
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(Portable(&p)["commissioning"]); string(got) != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}
