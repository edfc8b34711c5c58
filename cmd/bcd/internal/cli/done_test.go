package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// questions are the routes that are posted to and change nothing: their answer is what was asked for.
var questions = map[string]bool{"machines.test-bmc": true, "machines.query": true, "profiles.check": true}

// Every command that changes something says so in a few lines, never by printing the whole object, and says it of its own
// route.
func TestEveryWriteIsConfirmed(t *testing.T) {
	known := map[string]bool{}
	for _, rt := range api.Routes() {
		known[rt.ID] = true
		verb := rt.ID[strings.Index(rt.ID, ".")+1:]
		batch := rt.Method == http.MethodPost && rt.Path == "/api/v1/machines/{id}/"+verb && verb != "confirm-mac"
		told := batch || special[rt.ID] && rt.ID != "images.upload" || rt.ID == "approvals.decide" || questions[rt.ID]
		if _, said := sayings[rt.ID]; rt.CLI.Noun != "" && rt.Method != http.MethodGet && said == told && !special[rt.ID] {
			t.Errorf("%s: said %v, told another way %v", rt.ID, said, told)
		}
	}
	for id := range sayings {
		if !known[id] {
			t.Errorf("there is no route %s", id)
		}
	}
}

func TestConfirmations(t *testing.T) {
	for _, c := range []struct {
		id, answer string
		path       []string
		want       string
	}{
		{"machines.enroll", `{"id":"m-1","name":"node-1","state":"enrolled","power":"off","nics":[]}`, nil,
			"machine node-1 (m-1): enrolled; state enrolled; power off\n  next: bcd machine commission node-1 --wait\n"},
		{"subnets.create", `{"id":"net-1","cidr":"192.0.2.0/24","mode":"off","notes":["nothing listens on eno9"]}`, nil,
			"subnet 192.0.2.0/24 (net-1): added; mode off\n  nothing listens on eno9\n  next: bcd subnet mode net-1 full, proxy or http\n"},
		{"tokens.create", `{"id":"t-1","name":"ci","value":"bcd_x"}`, nil, "token ci (t-1): made; its value is shown this once\nbcd_x\n"},
		{"images.delete", ``, []string{"debian-12"}, "image debian-12: deleted\n"},
		{"images.delete", ``, []string{"\x1b[2J"}, "image \\u001b[2J: deleted\n"},
		{"machines.set-bmc", `{"card":{},"machine":{"id":"m-1","name":"node-1","power":"on","bmc":{"driver":"redfish","address":"https://192.0.2.12"}}}`, []string{"node-1"},
			"machine node-1 (m-1): BMC changed; driver redfish; bmc https://192.0.2.12; power on\n"},
		{"machines.set-bmc", `{"card":{"vendor":"Contoso"}}`, []string{"node-1"}, ""}, // a test, whose answer is the card
	} {
		var out strings.Builder
		told := tell(&out, route(c.id), c.path, json.RawMessage(c.answer))
		if out.String() != c.want || told != (c.want != "") {
			t.Errorf("%s: %v, %q", c.id, told, out.String())
		}
	}
}

// Waiting for an import shows each phase on standard error and ends with what became of the image.
func TestImportIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   string
		code   int
	}{
		{`{"id":"img-1","name":"web","state":"ready","format":"rootfs","rawBytes":2000000000}`, "image web (img-1): stored; state ready; format rootfs; size 2.0 GB\n  next: bcd machine deploy <machine> --image web --wait\n", 0},
		{`{"id":"img-1","name":"web","state":"failed","reason":"the archive is cut"}`, "", ExitFailed},
	} {
		asked, out, err := run(t, c.answer, 202, "image", "import", "web", "--url", "https://images.example/web.tar", "--sha256", "ab", "--wait")
		if ExitCode(err) != c.code || out != c.want || !strings.Contains(asked, "GET /api/v1/images/img-1") {
			t.Errorf("%v, %q, asked %q", err, out, asked)
		}
		if c.code != 0 && !strings.Contains(err.Error(), "the archive is cut") {
			t.Errorf("it says %v", err)
		}
	}
}

func TestImportProgress(t *testing.T) {
	var out strings.Builder
	p := imageProgress{out: &out}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, x := range []struct {
		after       time.Duration
		phase       app.ImagePhase
		done, total int64
	}{
		{0, app.ImageReceiving, 0, 400e6}, {0, app.ImageReceiving, 0, 400e6}, {2 * time.Second, app.ImageReceiving, 200e6, 400e6},
		{5 * time.Second, app.ImageReading, 10e6, 400e6}, {6 * time.Second, app.ImageStoring, 0, 0}, {8 * time.Second, app.ImageStoring, 4e6, 0},
	} {
		p.show(&app.Image{Phase: x.phase, Done: x.done, Total: x.total}, now.Add(x.after))
	}
	want := "receiving: 0 B of 400.0 MB\nreceiving: 200.0 MB of 400.0 MB, 100.0 MB/s, 2s left\nreading the archive: 10.0 MB of 400.0 MB\n" +
		"storing the disk: 0 B\nstoring the disk: 4.0 MB, 2.0 MB/s\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
