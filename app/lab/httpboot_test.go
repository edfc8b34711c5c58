package lab

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// TestCommissionByHTTPBoot takes a machine through commissioning whose BMC is asked for UEFI HTTP Boot: OVMF loads the
// machine's own program, which is loader, kernel and ramdisk, and its agent calls. Nothing goes by TFTP, and no script.
func TestCommissionByHTTPBoot(t *testing.T) {
	ramdisk := os.Getenv("BCD_LAB_RAMDISK")
	if ramdisk == "" || os.Getenv("BCD_LAB_WORK") == "" {
		t.Skip("left out: it takes minutes; set BCD_LAB_WORK to a folder and BCD_LAB_RAMDISK to a built ramdisk to run it as root")
	}
	const name = "http-1"
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(dir, "machines"), Network: NetworkConfig{Name: "bcdt-uki-lab"}, Log: log,
		Machines: []MachineSpec{{Name: name, Firmware: app.FirmwareUEFI, HTTPBoot: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	racked := make(chan error, 1)
	go func() { racked <- rack.Run(t.Context()) }()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	site, err := Program{Ramdisk: ramdisk, Output: io.Discard}.Start(t.Context(), Appliance{DataDir: data, Console: "127.0.0.1:0", Network: rack.Network, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = site.Wait(); <-racked })
	client := NewClient(site.URL(), site.SPKI())
	defer client.Close()
	begun := time.Now()
	d := &Driver{API: client, Rack: rack, Say: func(format string, args ...any) {
		t.Logf("%6.1f s "+format, append([]any{time.Since(begun).Seconds()}, args...)...)
	}}
	for _, step := range []func() error{
		func() error {
			return client.Setup(t.Context(), site.SetupCode(), AdminUser, "lab-test-password")
		},
		func() error { return d.PrepareNetwork(t.Context()) },
		func() error { return d.Enroll(t.Context(), name) },
		func() error { return d.commission(t.Context(), Plan{Machine: name}) },
	} {
		if err := step(); err != nil {
			t.Fatal(d.explain(name, err))
		}
	}
	var told json.RawMessage
	if err := client.Call(t.Context(), http.MethodGet, "/api/v1/machines/"+name+"/timeline?limit=500", nil, &told); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/boot/KEY/boot.efi", "http.begin"} {
		if !strings.Contains(string(told), want) {
			t.Errorf("the timeline has no %q: %s", want, told)
		}
	}
	for _, never := range []string{"ipxe.script", "tftp.get", "/boot/boot-"} {
		if strings.Contains(string(told), never) {
			t.Errorf("the timeline has %q: %s", never, told)
		}
	}
}
