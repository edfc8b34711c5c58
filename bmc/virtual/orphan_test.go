package virtual

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/child"
)

// What a child's environment says: the folder and the name of the machine it is to run until it is killed. The name is one
// test run's alone, as others may run at once.
const (
	orphanDir  = "BCD_VIRTUAL_ORPHAN_DIR"
	orphanName = "BCD_VIRTUAL_ORPHAN_NAME"
)

// TestQEMUDiesWithItsProgram kills a program that runs a machine, and finds the machine gone.
func TestQEMUDiesWithItsProgram(t *testing.T) {
	if dir := os.Getenv(orphanDir); dir != "" {
		cfg := config(t)
		cfg.Name, cfg.Dir, cfg.Hypervisor, cfg.NICs = os.Getenv(orphanName), dir, nil, nil
		cfg.Disks = []Disk{{Path: filepath.Join(dir, "disk.raw")}}
		cfg.OnLine = func(l Line) { _, _ = os.Stdout.WriteString(l.Text + "\n") }
		m := start(t, cfg)
		if err := m.Reset("On"); err != nil {
			t.Fatal(err)
		}
		<-t.Context().Done() // never: it is killed
	}
	needQEMU(t)
	dir, name := t.TempDir(), fmt.Sprintf("orphan-%d", os.Getpid())
	write(t, filepath.Join(dir, "disk.raw"), append(bootCode("alive and well"), make([]byte, 1<<20)...))
	cmd := exec.Command(os.Args[0], "-test.run=^TestQEMUDiesWithItsProgram$")
	cmd.Env = append(os.Environ(), orphanDir+"="+dir, orphanName+"="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(out); in.Scan() && !strings.Contains(in.Text(), "alive and well"); {
	}
	if len(orphans(t, name)) == 0 {
		t.Fatal("no machine runs, so that its end would prove nothing")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); len(orphans(t, name)) > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("processes %v outlive the program", orphans(t, name))
		}
	}
}

// orphans lists the emulators of this test's machine.
func orphans(t *testing.T, name string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range paths {
		if b, _ := os.ReadFile(p); strings.Contains(string(b), "\x00bcd-"+name+"\x00") {
			found = append(found, p)
		}
	}
	return found
}
