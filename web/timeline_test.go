package web_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

func rack(t *testing.T) *webtest.Site {
	t.Helper()
	x := site(t)
	x.Clock.Stop() // verdicts change with time
	for id, name := range map[string]string{"m-1": "node-1", "m-2": "node-2"} {
		if err := x.Store.CreateMachine(t.Context(), &app.Machine{ID: id, Name: name, State: app.StateEnrolled}); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func TestTimelinePagesFiltersAndJudges(t *testing.T) {
	x := rack(t)
	x.Record(webtest.Boot("m-1", x.Clock.Now().Add(-50*time.Second), "tftp", webtest.Hostile)...)
	x.Record(webtest.Boot("m-2", x.Clock.Now().Add(-50*time.Second), "power", "")...)
	viewer := x.As(app.RoleViewer)
	get := func(target string) (p api.Timeline) {
		t.Helper()
		w := x.Do("GET", "/api/v1/machines/"+target, viewer, "")
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := get("node-1/timeline")
	if len(all.Items) != 6 || all.Next != "" || all.Items[0].Kind != "tftp.get" || all.Items[0].MAC == "" || all.Items[5].Kind != "boot.permit" {
		t.Errorf("all: %+v", all)
	}
	if v := all.Verdict; v == nil || v.Code != recorder.CodeTFTPStall || v.WayOut == "" || len(v.Marks) == 0 {
		t.Errorf("verdict %+v", v)
	}
	if p := get("m-1/timeline?kind=bmc.,tftp.get"); len(p.Items) != 3 {
		t.Errorf("of two kinds: %+v", p.Items)
	}
	var seen []int64
	for next := "m-1/timeline?limit=4"; next != ""; {
		p := get(next)
		for _, r := range p.Items {
			seen = append(seen, r.ID)
		}
		if next = ""; p.Next != "" {
			next = "m-1/timeline?limit=4&before=" + p.Next
		}
	}
	if len(seen) != 6 {
		t.Errorf("pages gave %v", seen)
	}
	if p := get("m-1/timeline?since=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)); len(p.Items) != 0 || p.Items == nil {
		t.Errorf("in the future: %+v", p.Items)
	}
	for target, field := range map[string]string{"kind=dhcp": "kind", "kind=dhcp.,%27": "kind", "kind=": "", "before=0": "before", "before=x": "before", "since=now": "since", "limit=0": "limit", "bogus=1": "bogus"} {
		w := x.Do("GET", "/api/v1/machines/m-1/timeline?"+target, viewer, "")
		if field == "" {
			if w.Code != 200 {
				t.Errorf("%s: %d", target, w.Code)
			}
		} else if e := refusal(t, w); w.Code < 400 || w.Code >= 500 || e.Field != field {
			t.Errorf("%s: %d %+v", target, w.Code, e)
		}
	}
	if w := x.Do("GET", "/api/v1/machines/m-9/timeline", viewer, ""); w.Code != 404 {
		t.Errorf("of no machine: %d", w.Code)
	}
	if w := x.Do("GET", "/api/v1/machines/m-1/timeline", "", ""); w.Code != 401 {
		t.Errorf("of a stranger: %d", w.Code)
	}
}

func TestTimelineOfAPortThatIsNobodys(t *testing.T) {
	x := rack(t)
	x.Record(app.Record{MAC: "00:00:5e:00:53:07", Kind: "dhcp.heard", Message: "A machine tried to netboot."})
	viewer := x.As(app.RoleViewer)
	for _, spelt := range []string{"00:00:5e:00:53:07", "00-00-5E-00-53-07", "0000.5e00.5307"} {
		var p api.Timeline
		w := x.Do("GET", "/api/v1/discoveries/"+spelt+"/timeline", viewer, "")
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || len(p.Items) != 1 || p.Verdict != nil {
			t.Errorf("%s: %s", spelt, w.Body)
		}
	}
	if w := x.Do("GET", "/api/v1/discoveries/ff:ff:ff:ff:ff:ff/timeline", viewer, ""); w.Code != 422 {
		t.Errorf("of everybody: %d", w.Code)
	}
}

// A stream brings each record once and the verdict as it changes, and resumes.
func TestTimelineIsStreamed(t *testing.T) {
	x := rack(t)
	c, url := client(t, x, app.RoleViewer)
	boot := webtest.Boot("m-1", x.Clock.Now(), "tftp", "")
	x.Record(boot[:2]...)
	read := func(last, query string) *bufio.Scanner {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/v1/machines/node-1/timeline/stream"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		return bufio.NewScanner(resp.Body)
	}
	until := func(s *bufio.Scanner, text string) {
		t.Helper()
		for s.Scan() {
			if strings.Contains(s.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream ended without %q", text)
	}
	s := read("", "")
	until(s, "event: verdict")
	until(s, `"code":"starting"`)
	x.Record(boot[2:]...)
	until(s, `"kind":"dhcp.offer"`)
	until(s, `"kind":"tftp.get"`)
	until(s, `"code":"tftp-stall"`)
	s = read("1", "?kind=bmc.")
	until(s, "id: 2")
	until(s, "id: 3")
	until(s, "event: verdict")
}
