package lab

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// folders gives what the tests that boot machines need: a folder for what they share, and a built ramdisk.
func folders(t *testing.T) (work, ramdisk string) {
	t.Helper()
	work, ramdisk = os.Getenv("BCD_LAB_WORK"), os.Getenv("BCD_LAB_RAMDISK")
	if work == "" || ramdisk == "" {
		t.Skip("left out: it takes minutes; set BCD_LAB_WORK to a folder and BCD_LAB_RAMDISK to a built ramdisk to run it as root")
	}
	return work, ramdisk
}

// start runs a rack, and an appliance beside it whose administrator has logged in, until the test ends.
func start(t *testing.T, rack *Rack, p Program, log *slog.Logger) (*Driver, *Client, Site) {
	t.Helper()
	racked := make(chan error, 1)
	go func() { racked <- rack.Run(t.Context()) }()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	site, err := p.Start(t.Context(), Appliance{DataDir: data, Console: "127.0.0.1:0", Network: rack.Network, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = site.Wait(); <-racked })
	client := NewClient(site.URL(), site.SPKI())
	t.Cleanup(client.Close)
	if err := client.Setup(t.Context(), site.SetupCode(), AdminUser, "lab-test-password"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	return &Driver{API: client, Rack: rack, Say: func(format string, args ...any) {
		t.Logf("%6.1f s "+format, append([]any{time.Since(begun).Seconds()}, args...)...)
	}}, client, site
}
