package early

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"golang.org/x/crypto/ssh"
)

// u-root's programs that serve people.
const (
	shellProgram = "/bbin/gosh"
	sshdProgram  = "/bbin/sshd"
)

// rescue lets people in when the boot data says so: a shell on every console, and SSH for the keys it names.
func (p *initProcess) rescue(ctx context.Context, programs *sync.WaitGroup) {
	want, err := readRescue(filepath.Join("/", agentv1.BootDataPath))
	if err != nil {
		p.log.Warn("this is no rescue", "error", err)
	}
	if want == nil {
		return
	}
	for _, n := range consoleNames("/sys") {
		if n == "tty0" {
			n = "tty1" // tty0 is whichever is shown, and cannot be a controlling terminal of its own
		}
		programs.Go(func() {
			p.children.keep(ctx, program{name: "shell on " + n, exe: shellProgram, argv: []string{shellProgram},
				attr: func() (*os.ProcAttr, func(), error) { return onTerminal(filepath.Join("/dev", n)) }}, 0, p.log)
		})
	}
	if len(want.AuthorizedKeys) == 0 {
		return
	}
	argv, fingerprint, err := prepareSSH(filepath.Dir(ReportPath), want.AuthorizedKeys)
	if err != nil {
		p.log.Error("nobody can log in by SSH", "error", err)
	}
	if argv == nil {
		return
	}
	p.log.Info("SSH for the given keys on port 22, user root", "hostKey", fingerprint)
	programs.Go(func() {
		p.children.keep(ctx, program{name: "sshd", exe: sshdProgram, argv: argv, attr: p.onConsoles}, 0, p.log)
	})
}

// readRescue reads what the boot data says of a rescue: nil when it says nothing or there is none.
func readRescue(path string) (*agentv1.Rescue, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the boot data: %w", err)
	}
	var d agentv1.BootData
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("decoding the boot data: %w", err)
	}
	return d.Rescue, nil
}

// onTerminal is for a shell with job control on a terminal of its own.
func onTerminal(tty string) (*os.ProcAttr, func(), error) {
	f, err := os.OpenFile(tty, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the console %s: %w", tty, err)
	}
	return &os.ProcAttr{Dir: "/root", Files: []*os.File{f, f, f}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true}},
		func() { f.Close() }, nil
}

// prepareSSH writes the keys and a host key of this boot into dir, and gives sshd's arguments and the host key's
// fingerprint. Keys that do not parse or are restricted by options, which u-root's sshd does not know, are reported and
// left out; without any good one there are no arguments.
func prepareSSH(dir string, keys []string) (argv []string, fingerprint string, err error) {
	var good []byte
	var bad []error
	for i, k := range keys {
		pub, _, options, _, err := ssh.ParseAuthorizedKey([]byte(k))
		if err == nil && len(options) > 0 { // a restricted key must not become a free one
			err = fmt.Errorf("it has options (%q), which cannot be honoured here", options[0])
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("key %d is of no use: %w", i+1, err))
			continue
		}
		good = append(good, ssh.MarshalAuthorizedKey(pub)...)
	}
	if good == nil {
		return nil, "", errors.Join(bad...)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("making the host key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, "", fmt.Errorf("encoding the host key: %w", err)
	}
	host, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, "", fmt.Errorf("naming the host key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("making the SSH directory: %w", err)
	}
	keyFile, hostFile := filepath.Join(dir, "authorized_keys"), filepath.Join(dir, "ssh_host_key")
	if err := errors.Join(os.WriteFile(keyFile, good, 0o600),
		os.WriteFile(hostFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)); err != nil {
		return nil, "", fmt.Errorf("writing the SSH keys: %w", err)
	}
	return []string{sshdProgram, "-keys", keyFile, "-privatekey", hostFile, "-ip", "", "-port", "22"}, ssh.FingerprintSHA256(host), errors.Join(bad...)
}
