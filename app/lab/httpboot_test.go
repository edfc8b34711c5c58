package lab

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// TestCommissionByHTTPBoot takes a machine through commissioning whose BMC is asked for UEFI HTTP Boot: OVMF loads the
// machine's own program, which is loader, kernel and ramdisk, and its agent calls. Nothing goes by TFTP, and no script.
func TestCommissionByHTTPBoot(t *testing.T) {
	_, ramdisk := folders(t)
	const name = "http-1"
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(dir, "machines"), Network: NetworkConfig{Name: "bcdt-uki-lab"}, Log: log,
		Machines: []MachineSpec{{Name: name, Firmware: app.FirmwareUEFI, HTTPBoot: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	d, client, _ := start(t, rack, Program{Ramdisk: ramdisk, Output: io.Discard}, log)
	for _, step := range []func() error{
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
