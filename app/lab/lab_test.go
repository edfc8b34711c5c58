package lab

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMainJob is the whole lab: two machines enrolled, commissioned, deployed (one by firmware, one by kexec and a cold
// boot), one released; and nothing left behind.
func TestMainJob(t *testing.T) {
	work, ramdisk := os.Getenv("BCD_LAB_WORK"), os.Getenv("BCD_LAB_RAMDISK")
	if work == "" || ramdisk == "" {
		t.Skip("left out: it takes minutes; set BCD_LAB_WORK to a folder and BCD_LAB_RAMDISK to a built ramdisk to run it as root")
	}
	log, err := os.Create(filepath.Join(work, "lab.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var out bytes.Buffer
	err = Run(t.Context(), Config{
		Work: work, Auto: true, Console: "127.0.0.1:0", Network: NetworkConfig{Name: "bcdt-virtual-lab"},
		Start: Program{Ramdisk: ramdisk, Output: io.Discard}.Start, Out: io.MultiWriter(&out, t.Output()),
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := said[len(said)-1]; last != "lab: 2 machines deployed, 1 released" {
		t.Errorf("last line %q", last)
	}
	left, err := os.ReadDir(work)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if f.Name() != "images" && f.Name() != "lab.log" {
			t.Errorf("%s was left", f.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(namedNamespaces, "bcdt-virtual-lab")); !os.IsNotExist(err) {
		t.Errorf("the namespace was left: %v", err)
	}
}
