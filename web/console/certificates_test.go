package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/webtest"
)

// Who asks what became of the disks of a machine that is gone finds it in the browser: by name or serial number, then the page to
// print.
func TestCertificatesOfADeletedMachineAreFound(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "CN-7")
	viewer := x.As(app.RoleViewer)
	if err := x.Store.PutCertificate(t.Context(), &app.Certificate{WorkflowID: "w-99", MachineID: "m-99", Machine: "gone", Serial: "CN-99", Operator: "ada", Issued: time.Now(),
		Disks: []app.ErasedDisk{{Disk: app.DiskID{Serial: "ZA99"}, Erased: true, Method: "overwrite", Sentinels: 272}}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"/workflows":                  {`href="/certificates"`},
		"/certificates":               {"gone", "CN-99", "every disk erased", "rack1-node3", "NOT every disk erased", `href="/workflows/w-4/certificate"`},
		"/certificates?machine=CN-99": {"/workflows/w-99/certificate"},
		"/workflows/w-99/certificate": {"gone", "ZA99", "overwrite", "272 random blocks", "w-99</span>, deleted with the machine"},
		"/workflows/w-4/certificate":  {`href="/workflows/w-4"`},
	} {
		w := x.Do("GET", path, viewer, "")
		for _, s := range want {
			if w.Code != 200 || !strings.Contains(w.Body.String(), s) {
				t.Errorf("%s: %d, no %q", path, w.Code, s)
			}
		}
		if path == "/certificates?machine=CN-99" && strings.Contains(w.Body.String(), "rack1-node3") {
			t.Error("other machines are listed")
		}
	}
}
