package site_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// questions are those about ports, of the appliance that runs.
func (r *rig) questions() []api.PortQuestion {
	r.t.Helper()
	var l api.List[api.PortQuestion]
	r.must(http.MethodGet, "/api/v1/port-questions", nil, &l)
	return l.Items
}

// A card of node1 is put into node2: node2's inventory finds it. It stays node1's until a person says so, outlives a restart
// as a question, and is then node2's with all that follows: what boots from it, and who is told.
func TestAMovedCard(t *testing.T) {
	t.Parallel()
	r, c1 := ready(t)
	const card = app.MAC("00:00:5e:00:53:c1")
	c2 := newComputer(t, r, 2)
	c2.cards = []app.MAC{card}
	r.start("")
	r.must(http.MethodPost, "/api/v1/machines/"+machineName+"/confirm-mac", api.ConfirmInput{MAC: card}, nil)
	enroll(r, c2, "node2")
	r.verb("node2", api.Commission, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("a card of another machine: the commissioning is %s\n%s", n.State, r.story())
	}
	r.stop()
	r.start("")
	all := r.questions()
	if len(all) != 1 || all[0].State != app.QuestionOpen || all[0].MAC != card || all[0].Owner != machineName || all[0].Machine != "node2" {
		t.Fatalf("the questions are %+v", all)
	}
	if m := r.machine("node2"); len(m.NICs) != 1 {
		t.Errorf("node2 has %+v already", m.NICs)
	}
	if s := c2.script(t.Context(), card.Hyphen()+"&uuid="+c2.uuid); !strings.Contains(s, "sanboot") || bootDataRE.MatchString(s) {
		t.Errorf("before an answer it is told:\n%s", s)
	}
	// Two operators answer at once, and differently.
	var wg sync.WaitGroup
	errs := map[string]error{}
	var mu sync.Mutex
	for _, a := range []string{api.AnswerAccept, api.AnswerRefuse} {
		wg.Go(func() {
			err := r.call(http.MethodPost, "/api/v1/port-questions/"+all[0].ID+"/answer", api.AnswerInput{Answer: a}, nil)
			mu.Lock()
			defer mu.Unlock()
			errs[a] = err
		})
	}
	wg.Wait()
	switch e, _ := app.AsError(errs[api.AnswerAccept]); {
	case (errs[api.AnswerAccept] == nil) == (errs[api.AnswerRefuse] == nil):
		t.Fatalf("both, or none: %v", errs)
	case e != nil: // the other was quicker: it is asked again once that is forgotten
		if e.Reason != "question-answered" {
			t.Fatal(errs)
		}
		r.must(http.MethodDelete, "/api/v1/port-questions/"+all[0].ID, nil, nil)
		r.stop()
		r.start("")
		c2.script(t.Context(), card.Hyphen()+"&uuid="+c2.uuid)
		r.must(http.MethodPost, "/api/v1/port-questions/"+all[0].ID+"/answer", api.AnswerInput{Answer: api.AnswerAccept}, nil)
	}
	if m := r.machine("node2"); len(m.NICs) != 2 || m.NICs[1].MAC != card || !m.NICs[1].Confirmed {
		t.Errorf("node2 has %+v", m.NICs)
	}
	if m := r.machine(machineName); len(m.NICs) != 1 || m.NICs[0].MAC != c1.mac {
		t.Errorf("node1 has %+v", m.NICs)
	}
	held, release := c2.holding(agentv1.KindSetClock)
	w := r.verb("node2", api.Commission, nil)
	<-held
	m := bootDataRE.FindStringSubmatch(c2.script(t.Context(), card.Hyphen()+"&uuid="+c2.uuid))
	if m == nil {
		t.Fatal("the card is not node2's")
	}
	if _, cpio := c2.fetch(t.Context(), http.MethodGet, m[1], ""); !strings.Contains(string(cpio), w) {
		t.Errorf("it is offered another workflow than %s", w)
	}
	release()
	if n := r.await(newsOver); n.State != "done" {
		t.Errorf("%s\n%s", n.State, r.story())
	}
	r.settle()
	for _, name := range []string{machineName, "node2"} {
		var l api.List[app.Event]
		r.must(http.MethodGet, "/api/v1/events?kind=machine.mac&machine="+r.machine(name).ID, nil, &l)
		if len(l.Items) == 0 || !strings.Contains(l.Items[0].Message, "was moved from node1 to node2") || l.Items[0].Actor != "token:test" {
			t.Errorf("the trail of %s says %+v", name, l.Items)
		}
	}
}

// Two machines with one MAC address: the one that is not meant netboots in place of the other. It gets no command, no disk
// is touched, the deploy says what happened; and once it is gone, the deploy is retried and ends well.
func TestTwoMachinesWithOneMAC(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	c.twin = "99999999-89ab-cdef-0123-456789abcdef"
	r.start("")
	w := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	if n := r.await(newsOver); n.State != "failed" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	e := r.workflow(w).Error
	if e == nil || e.Reason != "another-machine" || !strings.Contains(e.Message, c.twin) || !strings.Contains(e.WayOut, "one MAC address") {
		t.Errorf("%+v", e)
	}
	if len(c.ranKeys()) != 0 || len(r.machine(machineName).OwnDisks) != 0 || c.bmc.PowerState() != "Off" {
		t.Errorf("it was told to do %v; disks of ours %v; power %s", c.ranKeys(), r.machine(machineName).OwnDisks, c.bmc.PowerState())
	}
	if l := r.events("agent.alarm"); len(l) == 0 || l[0].Level != "error" {
		t.Errorf("alarms %+v", l)
	}
	c.twin = ""
	r.post(api.Retry, nil)
	if n := r.await(newsOver); n.State != "done" || c.ran(agentv1.KindWrite) != 1 {
		t.Errorf("retried: %s, %d writes\n%s", n.State, c.ran(agentv1.KindWrite), r.story())
	}
}

// A new mainboard has a new UUID: it is refused until a person says that it is to be learned anew.
func TestANewMainboard(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	c.uuid = "99999999-89ab-cdef-0123-456789abcdef"
	r.start("")
	w := r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "failed" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	if e := r.workflow(w).Error; e == nil || e.Reason != "another-machine" || !strings.Contains(e.WayOut, "bcd machine set node1 --productUuid") {
		t.Errorf("%+v", e)
	}
	for body, want := range map[string]app.Code{`{"productUuid":"nonsense"}`: app.InvalidInput, `{"productUuid":"ffffffff-ffff-ffff-ffff-ffffffffffff"}`: app.InvalidInput} {
		if err := r.call(http.MethodPatch, "/api/v1/machines/"+machineName, json.RawMessage(body), nil); app.CodeOf(err) != want {
			t.Errorf("%s gave %v", body, err)
		}
	}
	r.must(http.MethodPatch, "/api/v1/machines/"+machineName, json.RawMessage(`{"productUuid":""}`), nil)
	r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	if m := r.machine(machineName); string(m.UUID) != c.uuid {
		t.Errorf("it has learned %s", m.UUID)
	}
}
