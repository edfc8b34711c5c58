package deploy

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

func TestSeedIsAFunctionOfItsInput(t *testing.T) {
	in := SeedInput{InstanceID: "m-1-wf-1", Hostname: "node-1", SSHKeys: []string{`ssh-ed25519 AAAA "quoted"`}, UserData: "#cloud-config\nx: 1\n", PhoneHome: "http://192.0.2.1:8080/phone-home/00"}
	a, b := Seed(in), Seed(in)
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if string(a["user-data"]) != in.UserData {
		t.Errorf("user-data became %q", a["user-data"])
	}
	if !strings.Contains(string(a["meta-data"]), `"local-hostname": "node-1"`) {
		t.Errorf("meta-data %s", a["meta-data"])
	}
}

// script runs the vendor-data as cloud-init does, below a root of its own with systemd, and gives the script it installs.
func script(t *testing.T, vendor []byte) string {
	t.Helper()
	root := t.TempDir()
	units := filepath.Join(root, "units")
	if err := os.Mkdir(units, 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("/var/lib/cloud", root, "/etc/systemd/system", units, "/run", filepath.Join(root, "run")).Replace(string(vendor))
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", text).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path := filepath.Join(root, "scripts/per-boot/90-bcd-phone-home")
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Fatalf("the installed script: %v, %v", st, err)
	}
	unit, err := os.ReadFile(filepath.Join(units, "multi-user.target.wants/bcd-phone-home.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/bin/sh "+path+"\n") {
		t.Errorf("the unit for later boots: %v\n%s", err, unit)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A server that stands still for seconds is no reason to call again, which would be counted.
	return strings.NewReplacer(" -m 5 ", " -m 300 ", " -T 5 ", " -T 300 ", "encode(), 5)", "encode(), 300)").Replace(string(body))
}

// TestASystemCallsOnceABoot runs the script twice, as systemd and cloud-init do.
func TestASystemCallsOnceABoot(t *testing.T) {
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { calls.Add(1) }))
	defer srv.Close()
	run := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	text := script(t, Seed(SeedInput{PhoneHome: srv.URL + "/phone-home/0123"})["vendor-data"])
	text = regexp.MustCompile(`\S+/run\b`).ReplaceAllString(text, run)
	for range 2 {
		// Its output is a pipe that the call in the background holds: Run returns once that has ended.
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(text, ">/dev/null 2>&1 &", "&"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("called %d times", n)
	}
}

// TestPhoneHomeScriptCallsWithEachClient runs the script of a seed with one client at a time on its PATH.
func TestPhoneHomeScriptCallsWithEachClient(t *testing.T) {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	var tries atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if tries.Add(1)%2 == 1 { // the first call of each client fails, as on an appliance that restarts
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		got <- r.Method + " " + r.URL.Path + " " + strings.TrimSpace(string(b))
	}))
	defer srv.Close()
	text := script(t, Seed(SeedInput{PhoneHome: srv.URL + "/phone-home/0123"})["vendor-data"])
	for _, client := range []string{"curl", "wget", "/usr/bin/python3", "bash"} {
		path, err := exec.LookPath(client)
		if err != nil {
			t.Logf("%s is not installed here: left out", client)
			continue
		}
		t.Run(filepath.Base(client), func(t *testing.T) {
			bin := t.TempDir()
			for name, target := range map[string]string{filepath.Base(client): path, "cat": "/bin/cat", "sleep": "/bin/true", "bash": "/bin/bash", "head": "/usr/bin/head", "grep": "/bin/grep"} {
				if name == "bash" && filepath.Base(client) == "python3" {
					continue // the last resort is for a system that has none of the others
				}
				if err := os.Symlink(target, filepath.Join(bin, name)); err != nil && !os.IsExist(err) {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", text)
			cmd.Env = []string{"PATH=" + bin}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if call := <-got; call != "POST /phone-home/0123 "+strings.TrimSpace(string(bootID)) {
				t.Errorf("called %q", call)
			}
		})
	}
}
