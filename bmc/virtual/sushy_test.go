package virtual

import (
	"encoding/pem"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSushy drives the BMC with an independent client, OpenStack's, in both ways of logging in.
func TestSushy(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's: python3-sushy is installed for no other
	if out, err := exec.Command(python, "-c", "import sushy").CombinedOutput(); err != nil {
		t.Skipf("left out: %v %s (install python3-sushy)", err, out)
	}
	web := serveImages(t, map[string][]byte{"/a.iso": []byte("iso a")})
	for _, how := range []string{"basic", "session"} {
		t.Run(how, func(t *testing.T) {
			fake := &Fake{}
			m := start(t, func() Config { c := config(t); c.Hypervisor = fake; return c }())
			ca := filepath.Join(t.TempDir(), "bmc.pem") // its own certificate, checked against the address
			write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.cert.Certificate[0]}))
			cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "testdata/drive.py", m.URL(), "admin", "correct horse", how, ca, web.URL+"/a.iso")
			cmd.Env = []string{"LANG=C.UTF-8"} // requests lets the environment's CA bundle and proxies win over its caller
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
				t.Fatalf("%v\n%s", err, out)
			}
			if boots := fake.Boots(); len(boots) != 5 || boots[0].Target != Pxe || boots[0].Firmware != "uefi" || boots[1].Target != Hdd || boots[3].Target != Cd || boots[3].CD == "" || boots[4].Target != Cd {
				t.Errorf("boots %+v", boots)
			}
			if n := m.Sessions(); n != 0 {
				t.Errorf("%d sessions left", n)
			}
		})
	}
}
