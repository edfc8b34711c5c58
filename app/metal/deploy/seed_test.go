package deploy

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// script takes the one part out of the vendor-data as a MIME reader does.
func script(t *testing.T, vendor []byte) string {
	t.Helper()
	msg, err := mail.ReadMessage(bytes.NewReader(vendor))
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	part, err := multipart.NewReader(msg.Body, params["boundary"]).NextPart()
	if err != nil {
		t.Fatal(err)
	}
	if got := part.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/cloud-boothook") {
		t.Errorf("the part is %s", got)
	}
	body, err := io.ReadAll(part)
	if err != nil {
		t.Fatal(err)
	}
	// Run the hook as cloud-init does, into a folder of this test, and take what it installed.
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(string(body), perBoot, dir)).CombinedOutput(); err != nil {
		t.Fatalf("the boothook: %v: %s", err, out)
	}
	installed := filepath.Join(dir, "90-bcd-phone-home")
	text, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(installed); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	return string(text)
}

// TestPhoneHomeScriptCallsWithEachClient runs the script of a seed with one client at a time on its PATH.
func TestPhoneHomeScriptCallsWithEachClient(t *testing.T) {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
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
			for name, target := range map[string]string{filepath.Base(client): path, "cat": "/bin/cat", "sleep": "/bin/sleep", "bash": "/bin/bash", "head": "/usr/bin/head", "grep": "/bin/grep"} {
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
