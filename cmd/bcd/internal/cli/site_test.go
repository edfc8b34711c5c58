package cli

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

// shell runs command lines against the real API of a site.
type shell struct {
	t    *testing.T
	site *webtest.Site
	pin  string
	url  string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	x := webtest.New(t, db)
	srv := httptest.NewTLSServer(x.Server.Handler())
	t.Cleanup(func() {
		srv.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	pin, err := client.SeePin(t.Context(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, v := range []string{"BCD_URL", "BCD_TOKEN", "BCD_PIN"} {
		t.Setenv(v, "")
	}
	return &shell{t: t, site: x, url: srv.URL, pin: pin}
}

// try runs one line with input and gives what it printed and its error.
func (s *shell) try(input string, args ...string) (string, error) {
	root := Group(&cobra.Command{Use: "bcd", SilenceErrors: true, SilenceUsage: true})
	root.AddGroup(&cobra.Group{ID: "client"})
	root.PersistentFlags().Bool("json", false, "")
	root.AddCommand(Commands()...)
	Usage(root)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetIn(strings.NewReader(input))
	root.SetArgs(args)
	err := root.ExecuteContext(s.t.Context())
	return out.String(), err
}

func (s *shell) must(input string, args ...string) string {
	s.t.Helper()
	out, err := s.try(input, args...)
	if err != nil {
		s.t.Fatalf("bcd %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *shell) login() {
	s.t.Helper()
	s.site.As(app.RoleAdmin)
	s.must(webtest.Password+"\n", "login", s.url, "--pin", s.pin, "-u", string(app.RoleAdmin))
}

// What the commands send is what the API takes: a life of a token once had a name that the API did not know, and nobody
// could log in.
func TestCommandsAgainstTheRealAPI(t *testing.T) {
	s := newShell(t)
	s.login()
	file, err := client.File()
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("login kept as %v, %v", st, err)
	}
	if out := s.must("", "session", "show"); !strings.Contains(out, "cli-") {
		t.Errorf("session: %s", out)
	}
	s.must("secret\n", "machine", "enroll", "node-1", "--bmc.driver", "redfish", "--bmc.address", "https://192.0.2.11", "--bmc.credentials.username", "admin",
		"--macs", "00:00:5e:00:53:01", "--labels", "rack=a")
	if out := s.must("", "machine", "list"); !strings.Contains(out, "node-1") {
		t.Errorf("list: %s", out)
	}
	s.must("", "machine", "set", "node-1", "--note", "by the door")
	s.must("", "machine", "power", "on", "node-1")
	s.must("", "machine", "lock", "node-1", "--reason", "mine")
	s.must("", "subnet", "add", "192.0.2.0/24", "--poolStart", "192.0.2.100", "--poolEnd", "192.0.2.199", "--leaseTime", "2h")
	var subnets api.List[api.SubnetView]
	if err := json.Unmarshal([]byte(s.must("", "subnet", "list", "--json")), &subnets); err != nil || len(subnets.Items) != 1 {
		t.Fatalf("subnets %+v, %v", subnets, err)
	}
	s.must("", "subnet", "set", subnets.Items[0].ID, "--cidr", "192.0.2.0/24", "--poolStart", "192.0.2.100", "--poolEnd", "192.0.2.199", "--routes", "198.51.100.0/24=192.0.2.254",
		"--options", "26=uint16:9000", "--options", "224=text:rack 1", "--tftpSinglePort", "--tftpBlockSize", "512")
	s.must("", "subnet", "reserve", subnets.Items[0].ID, "00-00-5e-00-53-01", "192.0.2.9", "--note", "printer")
	if out := s.must("", "subnet", "list", "--json"); !strings.Contains(out, "26=uint16:9000") || !strings.Contains(out, "198.51.100.0/24=192.0.2.254") || !strings.Contains(out, `"printer"`) || !strings.Contains(out, `"tftpBlockSize":512`) {
		t.Errorf("the subnet is %s", out)
	}
	s.must("", "subnet", "unreserve", subnets.Items[0].ID, "00:00:5e:00:53:01")
	s.must("", "subnet", "mode", subnets.Items[0].ID, "proxy")
	s.must("", "subnet", "mode", subnets.Items[0].ID, "full", "--despiteRival")
	s.must("", "subnet", "mode", subnets.Items[0].ID, "off")
	s.must("", "subnet", "delete", subnets.Items[0].ID)
	s.must("a new long password\n", "user", "add", "bob", "--role", "viewer")
	s.must("another long password\n", "user", "set", "bob", "--password")
	s.must("hush\n", "secret", "set", "note")
	s.must(`{"value": {"username": "a", "password": "b"}}`, "secret", "set", "bmc", "-f", "-")
	s.must("", "token", "create", "ci", "--permissions", "compute:machines:read", "--expiresIn", "720h")
	s.must("", "pool", "set", "rack-a", "--description", "the first rack")
	s.must("", "profile", "set", "small", "--kernelArgs", "console=ttyS1")
	s.must("", "settings", "set", "--siteName", "lab")
	s.must("", "driver", "pick", "redfish", "1.0.0")
	s.must("", "driver", "pick", "redfish", "")
	for _, noun := range []string{"image", "workflow", "event", "lease", "driver", "discovery", "pool", "profile", "secret", "user", "token"} {
		s.must("", noun, "list")
	}
	for _, noun := range []string{"health", "settings", "version"} {
		s.must("", noun, "show")
	}
	s.must("", "logout")
	if _, err := s.try("", "machine", "list"); ExitCode(err) != ExitUnavailable {
		t.Errorf("after logout: %v", err)
	}
}

// A password is never a value on a command line, where every account of the host can read it.
func TestNoCommandTakesASecretAsAValue(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, name := range []string{"password", "bmc.credentials.password", "credentials.password", "value", "old", "new", "token"} {
			if f := c.Flags().Lookup(name); f != nil && f.Value.Type() != "bool" {
				t.Errorf("%s --%s takes a value", c.CommandPath(), name)
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	for _, c := range Commands() {
		look(c)
	}
}

// Each flag and each noun says what it is for.
func TestHelpIsComplete(t *testing.T) {
	for _, c := range Commands() {
		if c.Short == "" {
			t.Errorf("%s has no summary", c.Name())
		}
		for _, sub := range c.Commands() {
			for _, name := range strings.Fields(flagNames(sub)) {
				if u := sub.Flags().Lookup(name).Usage; u == "" || strings.HasPrefix(u, ";") || strings.HasSuffix(u, ": ") {
					t.Errorf("%s --%s says nothing: %q", sub.CommandPath(), name, u)
				}
			}
		}
	}
}

func flagNames(c *cobra.Command) string {
	var names []string
	for line := range strings.Lines(c.LocalNonPersistentFlags().FlagUsages()) {
		if _, rest, ok := strings.Cut(line, "--"); ok {
			names = append(names, strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '[' })[0])
		}
	}
	return strings.Join(names, " ")
}

func TestExitCodesTellWhoIsAtFault(t *testing.T) {
	s := newShell(t)
	for _, c := range []struct {
		args string
		code int
	}{
		{"machine list", ExitUnavailable}, // nobody is logged in
		{"machine", 0},
		{"machine bogus", ExitUsage},
		{"bogus", ExitUsage},
		{"machine power", ExitUsage},
		{"machine power on", ExitUsage},
		{"machine show", ExitUsage},
		{"machine show a b", ExitUsage},
		{"machine list --bogus", ExitUsage},
		{"machine apply", ExitUsage},
	} {
		if _, err := s.try("", strings.Fields(c.args)...); ExitCode(err) != c.code {
			t.Errorf("bcd %s: %d, %v", c.args, ExitCode(err), err)
		}
	}
	s.login()
	if _, err := s.try("", "machine", "show", "nobody"); ExitCode(err) != ExitFailed {
		t.Errorf("%v", err)
	}
}

// A batch that failed on one machine has failed, in whatever form it is shown.
func TestABatchFailsWithOneOfItsMachines(t *testing.T) {
	answer := `{"items":[{"machineId":"m-1"},{"machineId":"m-2","error":{"code":"CONFLICT","reason":"machine-busy","message":"it is \u001b[2Jbusy"}}]}`
	for _, more := range [][]string{nil, {"--json"}, {"--wait"}} {
		_, out, err := run(t, answer, 202, append([]string{"machine", "lock", "a", "b"}, more...)...)
		if ExitCode(err) != ExitFailed || !strings.Contains(out, "b: it is \\u001b[2Jbusy") || !strings.Contains(out, "a: lock done") {
			t.Errorf("%v: %v\n%s", more, err, out)
		}
	}
}

func TestTokenNameFitsEveryHostName(t *testing.T) {
	for host, want := range map[string]string{"jump": "cli-jump", "Mac.local": "cli-mac-local", "_x_": "cli-x", "": "cli", strings.Repeat("a.", 60): "cli-" + strings.Repeat("a-", 29) + "a"} {
		if got := tokenName(host); got != want || app.ValidName("name", got) != nil {
			t.Errorf("%q gives %q", host, got)
		}
	}
}
