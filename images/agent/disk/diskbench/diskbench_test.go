package diskbench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMeasure runs both ways once on a small image. BCD_BENCH_IMAGE names a real image to measure with medians of 5.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	for _, tool := range []string{"zstd", "curl", "losetup", "dd"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	image, runs := os.Getenv("BCD_BENCH_IMAGE"), 5
	if image == "" {
		image, runs = filepath.Join(t.TempDir(), "dense"), 1
		f, err := os.Create(image)
		if err != nil {
			t.Fatal(err)
		}
		if err := Dense(f, 24<<20); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for name, from := range map[string]Source{"a local file": LocalFile, "HTTP": HTTP} {
		r, err := Measure(t.Context(), image, t.TempDir(), runs, from)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("dd from %s: ratio %.2f: agent %.0f MB/s (%.0f with read-back) and %.2f s of processors, dd %.0f MB/s and %.2f s; %d requests, %d bytes fetched",
			name, r.Ratio, r.Rate/1e6, r.RateVerify/1e6, r.CPU, r.Peer/1e6, r.CPUPeer, r.Requests, r.Wire)
	}
}

// TestPipeline passes bytes on and tells which of the commands failed.
func TestPipeline(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if _, _, err := pipeline(exec.Command("echo", "a"), exec.Command("tr", "a", "b"), exec.Command("tee", out)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); string(b) != "b\n" {
		t.Errorf("the last command got %q, %v", b, err)
	}
	if _, _, err := pipeline(exec.Command("false"), exec.Command("cat")); err == nil || !strings.HasPrefix(err.Error(), "false: ") {
		t.Errorf("a failure of the first command is %v", err)
	}
	if _, _, err := pipeline(exec.Command("cat", "/dev/zero"), exec.Command("/nonexistent")); err == nil {
		t.Error("a command that cannot be started is no error")
	}
}
