package lab

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/layout"
	"github.com/better-compute/bcd/images/osimage"
	"github.com/better-compute/bcd/web/api"
)

// hangsAfterKexec is a copy of a built image whose system stops in its initial ramdisk, for ever and without a word, when it
// is entered by kexec. What tells the two apart is a command that GRUB on a 64-bit processor answers with yes, and that the
// ramdisk, which only reads the configuration, answers with no.
func hangsAfterKexec(t *testing.T, dir, built string) string {
	t.Helper()
	path := filepath.Join(dir, "hangs.raw")
	run(t, "", "cp", "--sparse=always", built, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var root app.Partition
	for _, p := range layout.Detect(f, st.Size(), 512).Partitions {
		if p.FS == "ext4" {
			root = p
		}
	}
	at := filepath.Join(dir, "root")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "", "mount", "-o", "loop,offset="+strconv.FormatInt(root.Start, 10)+",sizelimit="+strconv.FormatInt(root.Size, 10), path, at)
	defer run(t, "", "umount", at)
	cfg := filepath.Join(at, "boot/grub/grub.cfg")
	b, err := os.ReadFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`(?s)\n\tlinux\t([^\n]*)\n.*?\n\tinitrd\t([^\n]*)\n`).FindSubmatch(b)
	if entry == nil {
		t.Fatalf("grub.cfg has no entry:\n%s", b)
	}
	text := string(b) + "\ninsmod cpuid\nif cpuid -l; then set default=0; else set default=hang; fi\nmenuentry hang --id hang {\n" +
		"search --no-floppy --fs-uuid --set=root " + root.FSUUID + "\nlinux " + string(entry[1]) + " break=top\ninitrd " + string(entry[2]) + "\n}\n"
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestHungKernel enters a system by kexec that hangs. Nothing is heard of it, its machine is reset into its disk, and the
// deploy ends well; the model is remembered as one on which kexec fails.
func TestHungKernel(t *testing.T) {
	work, ramdisk := folders(t)
	const name = "hangs-1"
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	img, err := osimage.Build(t.Context(), osimage.Config{Cache: filepath.Join(work, "images"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	image := hangsAfterKexec(t, dir, img.Path)
	var screen console
	rack, err := NewRack(RackConfig{Dir: filepath.Join(dir, "machines"), Network: NetworkConfig{Name: "bcdt-kexec-lab"}, Log: log, OnLine: screen.line,
		Machines: []MachineSpec{{Name: name, Firmware: app.FirmwareBIOS, Bus: virtual.VirtIO}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	d, client, site := start(t, rack, Program{Ramdisk: ramdisk, Output: io.Discard, Silence: time.Minute}, log)
	screen.show(site)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(d.explain(name, err))
		}
	}
	ok(d.PrepareNetwork(t.Context()))
	_, err = d.ImportImage(t.Context(), image)
	ok(err)
	ok(d.Enroll(t.Context(), name))
	ok(d.commission(t.Context(), Plan{Machine: name}))
	_, err = d.Verb(t.Context(), name, api.Deploy, app.DeploySpec{Image: ImageName, Boot: app.BootKexec, ColdProof: true})
	ok(err)

	m, err := d.machine(t.Context(), name)
	ok(err)
	t.Logf("the machine is %s (%s), its deployment %+v", m.State, m.StateReason, m.Deployment)
	if x := m.Deployment; m.State != app.StateDeployed || !x.Confirmed || x.BootPath != "firmware" || !strings.Contains(x.Retreat, "nothing was heard") {
		t.Errorf("the machine is %s: %+v", m.State, x)
	}
	var k api.KexecReport
	ok(client.Call(t.Context(), http.MethodGet, "/api/v1/machines/"+name+"/kexec", nil, &k))
	t.Log(k.Sentence)
	if k.Verdict != app.KexecKnownBad || len(k.Trials) != 1 || k.Trials[0].Outcome != app.KexecSilent {
		t.Errorf("remembered %+v", k)
	}
}
