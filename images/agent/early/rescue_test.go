package early

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func publicKey(t *testing.T) string {
	t.Helper()
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

func TestReadRescue(t *testing.T) {
	dir := tree(t, map[string]string{"plain.json": `{"machineId":"m"}`, "rescue.json": `{"rescue":{"authorizedKeys":["k"]}}`, "bad.json": `{`})
	for name, want := range map[string]string{"absent.json": "no", "plain.json": "no", "rescue.json": "yes", "bad.json": "error"} {
		r, err := readRescue(filepath.Join(dir, name))
		got := map[bool]string{true: "yes", false: "no"}[r != nil]
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
	}
}

// TestPrepareSSH: a key that does not parse keeps nobody else out and is named; a restricted key lets nobody in freely.
func TestPrepareSSH(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bcd")
	a, b, restricted := publicKey(t), publicKey(t), publicKey(t)
	argv, fingerprint, err := prepareSSH(dir, []string{a + " ops@example.org", "not a key", `command="/bin/false" ` + restricted, b})
	if err == nil || !strings.Contains(err.Error(), "key 2") || !strings.Contains(err.Error(), "key 3") || !strings.HasPrefix(fingerprint, "SHA256:") || argv == nil {
		t.Fatalf("%v %q %v", argv, fingerprint, err)
	}
	keys, err := os.ReadFile(filepath.Join(dir, "authorized_keys"))
	if want := a + "\n" + b + "\n"; string(keys) != want || err != nil {
		t.Errorf("%q %v, want %q", keys, err, want)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ssh_host_key"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(pem)
	if err != nil || ssh.FingerprintSHA256(host.PublicKey()) != fingerprint {
		t.Errorf("host key: %v", err)
	}
	if st, err := os.Stat(filepath.Join(dir, "ssh_host_key")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if argv, _, err := prepareSSH(dir, []string{"junk"}); argv != nil || err == nil {
		t.Errorf("sshd with no key to let in: %v %v", argv, err)
	}
}
