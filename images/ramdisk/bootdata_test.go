package ramdisk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/google/go-cmp/cmp"
)

func TestBootDataCPIO(t *testing.T) {
	// Every length modulo four, so that each padding is seen.
	for i := range 4 {
		d := agentv1.BootData{MachineID: "m1" + strings.Repeat("x", i), SiteURLs: []string{"https://192.0.2.1:8443"}, Token: "secret", BootMAC: "00:00:5e:00:53:01"}
		b, err := BootDataCPIO(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := BootDataCPIO(d); err != nil || !bytes.Equal(b, again) {
			t.Errorf("a refetch differs: %v", err)
		}
		if len(b)%4 != 0 {
			t.Errorf("%d bytes leave the next initrd misaligned", len(b))
		}
		var names []string
		var got agentv1.BootData
		if _, err := readCPIO(b, func(e entry) {
			names = append(names, fmt.Sprintf("%o %s", e.Mode, e.Name))
			if e.Name == agentv1.BootDataPath {
				err = json.Unmarshal(e.Body, &got)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"40755 bcd", "100600 bcd/boot.json"}, names); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Error(diff)
		}
		slot, err := BootDataCPIOIn(d, BootDataSlot)
		if err != nil || len(slot) != BootDataSlot || !bytes.HasPrefix(slot, b) || len(bytes.TrimRight(slot[len(b):], "\x00")) != 0 {
			t.Errorf("slot of %d bytes: %v", len(slot), err)
		}
	}
}

func TestBootDataTooLarge(t *testing.T) {
	d := agentv1.BootData{Rescue: &agentv1.Rescue{AuthorizedKeys: []string{strings.Repeat("k", BootDataSlot)}}}
	if e, ok := app.AsError(second(BootDataCPIOIn(d, BootDataSlot))); !ok || e.Reason != "boot-data-too-large" || e.WayOut == "" {
		t.Errorf("%v", e)
	}
	if _, err := BootDataCPIOIn(d, 10); err == nil {
		t.Error("accepted a slot that misaligns what follows")
	}
}
