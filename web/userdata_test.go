package web_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// TestUserDataIsForThoseWhoMayDeploy asks for everything that holds a deploy's user-data, as each role: it often has passwords
// in it.
func TestUserDataIsForThoseWhoMayDeploy(t *testing.T) {
	const planted = "planted-5f2a"
	x := site(t)
	data := func(more string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"spec":{"image":"debian","userData":"#cloud-config\npassword: %s\n"},"bytes":12345678901234567890%s}`, planted, more))
	}
	if err := x.Store.CreateMachine(t.Context(), &app.Machine{ID: "m-1", Name: "node-1", State: app.StateReady}); err != nil {
		t.Fatal(err)
	}
	seed := json.RawMessage(fmt.Sprintf(`{"image":"debian","n":12345678901234567890,"seed":{"user-data":"password: %s"}}`, planted)) // of a profile's step
	profile := &app.Profile{Name: "gpu", Steps: app.ProfileSteps{Commission: []app.ProfileStep{{Step: "deploy.deploy", With: seed}},
		BeforeWrite: []app.ProfileStep{{Step: "deploy.deploy", With: seed}}, AfterWrite: []app.ProfileStep{{Step: "deploy.deploy", With: seed}}}}
	if err := x.Store.PutProfile(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	x.Flows.Put(workflow.Workflow{ID: "w-1", Verb: "deploy", MachineID: "m-1", State: workflow.Running, Input: data(""), Data: data(`,"list":[{"userData":"` + planted + `"}]`),
		Steps: []workflow.Step{{ID: "seed", Title: "Write", Payload: data(""), Result: data("")}, {ID: "own", Payload: seed}}})
	x.Flows.Entries = []workflow.Entry{{ID: 1, WorkflowID: "w-1", StepID: "seed", What: "deliver", Data: data("")}}
	if err := x.Store.CreateApproval(t.Context(), &app.Approval{ID: "ap-1", Operation: "deploy", Verb: "deploy", Options: data(""), State: app.ApprovalPending, Created: x.Clock.Now(), Expires: x.Clock.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"workflows", "workflows/w-1", "workflows/w-1/journal", "approvals", "approvals/ap-1", "profiles", "profiles/gpu"} {
		seen := func(r app.Role) string {
			w := x.Do("GET", "/api/v1/"+path, x.As(r), "")
			if w.Code != 200 {
				t.Fatalf("%s as %s: %d %s", path, r, w.Code, w.Body)
			}
			return w.Body.String()
		}
		if b := seen(app.RoleOperator); !strings.Contains(b, planted) {
			t.Errorf("%s keeps the user-data from an operator: %s", path, b)
		}
		b := seen(app.RoleViewer)
		if strings.Contains(b, planted) {
			t.Errorf("%s shows the user-data to a viewer: %s", path, b)
		}
		for _, kept := range []string{"withheld: ", `"image":"debian"`, "12345678901234567890"} {
			if !strings.Contains(b, kept) {
				t.Errorf("%s shows a viewer no %q: %s", path, kept, b)
			}
		}
	}
	if w, _ := x.Flows.Get(t.Context(), "w-1"); !strings.Contains(string(w.Steps[0].Payload), planted) {
		t.Error("the workflow itself lost its user-data")
	}
}
