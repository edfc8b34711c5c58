package virtual

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// orphanDir names, in a child's environment, the folder of the machine it is to run until it is killed.
const orphanDir = "BCD_VIRTUAL_ORPHAN_DIR"

const orphanName = "orphan-test"

// TestQEMUDiesWithItsProgram kills a program that runs a machine, and finds the machine gone.
func TestQEMUDiesWithItsProgram(t *testing.T) {
	if dir := os.Getenv(orphanDir); dir != "" {
		cfg := config(t)
		cfg.Name, cfg.Dir, cfg.Hypervisor, cfg.NICs = orphanName, dir, nil, nil
		cfg.Disks = []Disk{{Path: filepath.Join(dir, "disk.raw")}}
		cfg.OnLine = func(l Line) { _, _ = os.Stdout.WriteString(l.Text + "\n") }
		m := start(t, cfg)
		if err := m.Reset("On"); err != nil {
			t.Fatal(err)
		}
		<-t.Context().Done() // never: it is killed
	}
	needQEMU(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "disk.raw"), append(bootCode("alive and well"), make([]byte, 1<<20)...))
	cmd := exec.Command(os.Args[0], "-test.run=^TestQEMUDiesWithItsProgram$")
	cmd.Env = append(os.Environ(), orphanDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(out); in.Scan() && !strings.Contains(in.Text(), "alive and well"); {
	}
	if len(orphans(t)) == 0 {
		t.Fatal("no machine runs, so that its end would prove nothing")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); len(orphans(t)) > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("processes %v outlive the program", orphans(t))
		}
	}
}

// orphans lists the emulators of this test's machine.
func orphans(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range paths {
		if b, _ := os.ReadFile(p); strings.Contains(string(b), "\x00bcd-"+orphanName+"\x00") {
			found = append(found, p)
		}
	}
	return found
}
