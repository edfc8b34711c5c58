package diskbench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMeasure runs both ways once on a small image. BCD_BENCH_IMAGE names a real image to measure with medians of 5.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	for _, tool := range []string{"zstd", "losetup", "dd"} {
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
	r, err := Measure(t.Context(), image, t.TempDir(), runs)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ratio %.2f: agent %.0f MB/s (%.0f with read-back) and %.2f s of processors, dd %.0f MB/s and %.2f s; %d requests, %d bytes fetched",
		r.Ratio, r.Rate/1e6, r.RateVerify/1e6, r.CPU, r.Peer/1e6, r.CPUPeer, r.Requests, r.Wire)
}
