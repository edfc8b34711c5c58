package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// recorded puts records on the timelines of the site and waits until they are there.
func (s *shell) recorded(records ...app.Record) {
	s.t.Helper()
	sub := s.site.Records.Follow(app.RecordFilter{MachineID: records[len(records)-1].MachineID, MAC: records[len(records)-1].MAC}, 64)
	defer sub.Close()
	for _, x := range records {
		s.site.Records.Record(x)
	}
	for range records {
		select {
		case <-sub.C:
		case <-s.t.Context().Done():
			s.t.Fatal("nothing was recorded")
		}
	}
}

func (s *shell) node() string {
	s.t.Helper()
	s.site.Clock.Stop() // a verdict says how long ago it was
	m := &app.Machine{ID: "m-1", Name: "node-1", State: app.StateEnrolled}
	if err := s.site.Store.CreateMachine(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
	return m.ID
}

var (
	permit  = app.Record{MachineID: "m-1", Kind: "boot.permit", Message: "The next network boot loads the ramdisk."}
	powered = app.Record{MachineID: "m-1", Kind: "bmc.power", Message: "The BMC is asked: power on.", Data: []byte(`{"action":"on","phase":"asked"}`)}
)

func TestTimelineForPeopleAndPrograms(t *testing.T) {
	s := newShell(t)
	s.login()
	s.node()
	if out := s.must("", "machine", "timeline", "node-1"); out != "nothing was seen yet\n" {
		t.Errorf("empty: %q", out)
	}
	s.recorded(permit, powered, app.Record{MachineID: "m-1", Kind: "console.line", Message: "a \u202e \x1b[2J b"})
	out := s.must("", "machine", "timeline", "node-1")
	for _, want := range []string{"boot.permit     The next network boot", "bmc.power       The BMC is asked: power on.\n", "console.line    a   b\n", "  => wait: Powered on 0 s ago; its firmware is starting.\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Index(out, "boot.permit") > strings.Index(out, "bmc.power") {
		t.Errorf("the oldest is not first:\n%s", out)
	}
	if out := s.must("", "machine", "timeline", "node-1", "--kind", "bmc.", "--limit", "1"); strings.Contains(out, "boot.permit") || !strings.Contains(out, "earlier: --before ") {
		t.Errorf("filtered:\n%s", out)
	}
	var page api.Timeline
	if err := json.Unmarshal([]byte(s.must("", "machine", "timeline", "m-1", "--json")), &page); err != nil || len(page.Items) != 3 || page.Verdict == nil || page.Verdict.Code != "starting" {
		t.Errorf("JSON %+v, %v", page, err)
	}
	s.recorded(app.Record{MAC: "00:00:5e:00:53:07", Kind: "dhcp.heard", Message: "A machine tried to netboot."})
	if out := s.must("", "discovery", "timeline", "00-00-5E-00-53-07"); !strings.Contains(out, "dhcp.heard") {
		t.Errorf("of a port:\n%s", out)
	}
	if _, err := s.try("", "machine", "timeline", "nobody"); ExitCode(err) != ExitFailed {
		t.Errorf("of nobody: %v", err)
	}
}

// follow runs a command in the background and gives its lines.
func (s *shell) follow(args ...string) (lines *bufio.Scanner, stop func() error) {
	root := &cobra.Command{Use: "bcd", SilenceErrors: true, SilenceUsage: true}
	root.AddGroup(&cobra.Group{ID: "client"})
	root.PersistentFlags().Bool("json", false, "")
	root.AddCommand(Commands()...)
	r, w := io.Pipe()
	root.SetOut(w)
	root.SetErr(w)
	root.SetArgs(args)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		w.CloseWithError(err)
		done <- err
	}()
	return bufio.NewScanner(r), func() error { cancel(); r.Close(); return <-done }
}

func TestTimelineIsFollowed(t *testing.T) {
	s := newShell(t)
	s.login()
	s.node()
	s.recorded(permit)
	lines, stop := s.follow("machine", "timeline", "node-1", "--follow")
	want := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the output ended without %q", text)
	}
	want("boot.permit")
	s.recorded(powered)
	want("power on.")
	want("=> wait: Powered on")
	if err := stop(); ExitCode(err) != ExitInterrupted {
		t.Errorf("at the end: %v", err)
	}
}

func TestEventsAreFollowedByKindAndMachine(t *testing.T) {
	answer := ": hello\n\nid: 7\ndata: {\"id\":7,\"time\":\"2026-01-02T03:04:05Z\",\"kind\":\"bmc.power\",\"level\":\"info\",\"message\":\"on \\u001b[2J\"}\n\n"
	asked, out, err := run(t, answer, 200, "event", "follow", "--kind", "bmc.", "--machine", "node-1", "--workflow", "w-1")
	if err != nil || strings.TrimSpace(asked) != "GET /api/v1/events/stream?kind=bmc.&machine=node-1&workflow=w-1" {
		t.Errorf("asked %s, %v", asked, err)
	}
	if !strings.Contains(out, `bmc.power`) || !strings.Contains(out, `on \u001b[2J`) {
		t.Errorf("printed %q", out)
	}
}
