package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

func TestMachinesOfBothForms(t *testing.T) {
	want := []map[string]any{{"name": "node-1", "bmc": map[string]any{"driver": "redfish", "address": "https://192.0.2.11"}}}
	for name, file := range map[string]string{
		"csv":  "name,bmc.driver,bmc.address,note\nnode-1,redfish,https://192.0.2.11,\n",
		"yaml": "- name: node-1\n  bmc: {driver: redfish, address: 'https://192.0.2.11'}\n",
		"json": `[{"name":"node-1","bmc":{"driver":"redfish","address":"https://192.0.2.11"}}]`,
	} {
		got, err := Machines([]byte(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for _, bad := range []string{"", "name,bmc.driver\n", "just words", "a,b\n\"x"} {
		if _, err := Machines([]byte(bad)); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%q gave %v", bad, err)
		}
	}
}

func TestPrintIsHarmlessOnATerminal(t *testing.T) {
	var out bytes.Buffer
	answer := `{"items":[{"name":"\u001b[2Jevil","state":"ready","power":"on"}]}`
	if err := Print(&out, "machine", json.RawMessage(answer)); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(out.String(), 0x1b) || !strings.Contains(out.String(), `\u001b[2Jevil`) {
		t.Errorf("printed %q", out.String())
	}
}

func TestMachineListsOfOtherThings(t *testing.T) {
	for c, want := range map[api.CLI]string{
		{Noun: "machine", Verb: "bmc-log"}:         "power.getPower",
		{Noun: "machine", Verb: "driver-problems"}: "install it",
	} {
		var out bytes.Buffer
		answer := `{"items":[{"kind":"power","operation":"power.getPower","error":{"message":"no such driver","wayOut":"install it"}}]}`
		if err := Print(&out, listed[c], json.RawMessage(answer)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v: %q, %v", c, out.String(), err)
		}
		out.Reset()
		if err := Print(&out, listed[c], json.RawMessage(`{"items":[]}`)); err != nil || out.String() != "no "+listed[c]+"s\n" {
			t.Errorf("%v: %q, %v", c, out.String(), err)
		}
	}
}

func TestEmptyListSaysSo(t *testing.T) {
	var out bytes.Buffer
	if err := Print(&out, "machine", json.RawMessage(`{"items":[]}`)); err != nil || out.String() != "no machines\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for noun, want := range map[string]string{"discovery": "discoveries", "health": "warnings", "image": "images", "port": "questions about ports"} {
		if got := plural(noun); got != want {
			t.Errorf("%s: %s", noun, got)
		}
	}
}

// run executes a command line against a server that records what it was asked.
func run(t *testing.T, answer string, status int, args ...string) (asked, out string, err error) {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		asked += r.Method + " " + r.URL.RequestURI() + " " + b.String() + "\n"
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer srv.Close()
	pin, err := client.SeePin(t.Context(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BCD_URL", srv.URL)
	t.Setenv("BCD_TOKEN", "t")
	t.Setenv("BCD_PIN", pin)
	root := &cobra.Command{Use: "bcd", SilenceErrors: true, SilenceUsage: true}
	root.AddGroup(&cobra.Group{ID: "client"})
	root.PersistentFlags().Bool("json", false, "")
	root.AddCommand(Commands()...)
	var buf bytes.Buffer
	root.SetOut(&buf)
	root.SetErr(&buf)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return asked, buf.String(), err
}

func TestFlagsBecomeTheRequest(t *testing.T) {
	asked, _, err := run(t, `{"id":"m-1"}`, 201, "machine", "enroll", "node-1", "--bmc.driver", "redfish", "--bmc.address", "https://192.0.2.11", "--macs", "00:00:5e:00:53:01", "--firmware", "uefi")
	if err != nil {
		t.Fatal(err)
	}
	want := `POST /api/v1/machines {"bmc":{"address":"https://192.0.2.11","driver":"redfish"},"firmware":"uefi","macs":["00:00:5e:00:53:01"],"name":"node-1"}`
	if strings.TrimSpace(asked) != want {
		t.Errorf("asked %s", asked)
	}
}

func TestValuesComeFromFiles(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, "keys.pub"), []byte("# mine\nssh-ed25519 AAAA one\n\nssh-ed25519 BBBB two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "user-data"), []byte("#cloud-config\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked, _, err := run(t, `{}`, 202, "machine", "deploy", "a", "--image", "i", "--sshKeys", "@~/keys.pub", "--sshKeys", "ssh-rsa CCCC three", "--userData", "@"+filepath.Join(home, "user-data"))
	if err != nil {
		t.Fatal(err)
	}
	want := `POST /api/v1/machines/a/deploy {"image":"i","sshKeys":["ssh-ed25519 AAAA one","ssh-ed25519 BBBB two","ssh-rsa CCCC three"],"userData":"#cloud-config\n{}\n"}`
	if strings.TrimSpace(asked) != want {
		t.Errorf("asked %s", asked)
	}
	if _, _, err := run(t, `{}`, 202, "machine", "deploy", "a", "--image", "i", "--userData", "@/does/not/exist"); app.CodeOf(err) != app.InvalidInput {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSeveralMachinesGoAsOneBatch(t *testing.T) {
	asked, _, err := run(t, `{"items":[]}`, 202, "machine", "power", "on", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	if want := `POST /api/v1/machines/actions/power {"ids":["a","b"],"options":{"action":"on"}}`; strings.TrimSpace(asked) != want {
		t.Errorf("asked %s", asked)
	}
}

func TestAnErrorKeepsItsCodeAndWayOut(t *testing.T) {
	_, _, err := run(t, `{"error":{"code":"CONFLICT","reason":"machine-busy","message":"a is busy","wayOut":"wait"}}`, 409, "machine", "commission", "a")
	var e *app.Error
	if !errors.As(err, &e) || e.Code != app.Conflict || e.WayOut != "wait" {
		t.Errorf("got %#v", err)
	}
}

func TestAnotherKeyIsRefused(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	c, err := client.New(client.Login{URL: srv.URL, Pin: strings.Repeat("00", 32)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(t.Context(), "GET", "/", nil, nil)
	if e, _ := app.AsError(err); e == nil || e.Reason != "tls-pin-mismatch" {
		t.Errorf("got %v", err)
	}
}
