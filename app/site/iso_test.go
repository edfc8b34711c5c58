package site_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
)

const isoName = "installer"

// bootCD is a CD image of 300 KiB with a boot catalog for the firmware named.
func bootCD(bios, uefi bool) []byte {
	const sector = 2048
	b := make([]byte, 150*sector)
	copy(b[16*sector:], "\x01CD001\x01")
	copy(b[17*sector:], "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(b[17*sector+0x47:], 18)
	catalog := b[18*sector:]
	catalog[0], catalog[0x1e], catalog[0x1f] = 1, 0x55, 0xaa
	if !bios {
		catalog[1] = 0xef
	}
	if bios || uefi {
		catalog[32] = 0x88
	}
	if bios && uefi {
		catalog[64], catalog[65], catalog[96] = 0x91, 0xef, 0x88
	}
	return b
}

var isoRE = regexp.MustCompile(`(?m)^sanboot --no-describe --drive 0xe0 (http://\S+/image\.iso) `)

// readISO reads an image as a loader does: its size, its first blocks, and, when it knows what it is, what it starts.
func (c *computer) readISO(ctx context.Context, url string) {
	for _, span := range []string{"", "bytes=0-2047", "bytes=32768-36863", "bytes=40960-147455"} {
		if span == "bytes=40960-147455" && c.hold != nil {
			c.hold(ctx, "iso")
		}
		read := func() bool { return c.whileServed(ctx, func() bool { return c.readPart(ctx, url, span) }) }
		if !c.patiently(ctx, read) {
			return
		}
	}
	c.change(func() { c.isos++ })
}

func (c *computer) readPart(ctx context.Context, url, span string) bool {
	method := http.MethodHead
	if span != "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		c.t.Error(err)
		return true
	}
	if span != "" {
		req.Header.Set("Range", span)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil || res.StatusCode >= 300 {
		return false
	}
	if span != "" && !bytes.HasPrefix(bootCD(true, true)[40960:], b.Bytes()) && strings.HasPrefix(span, "bytes=4") {
		c.t.Errorf("%s of the image is other bytes", span)
	}
	return true
}

func putISO(r *rig, name string, image []byte) app.Image {
	r.t.Helper()
	var i app.Image
	r.must(http.MethodPut, "/api/v1/images/"+name, image, &i)
	return i
}

// isoWay is one way to boot an image: what the machine, which was off, has seen when it is in it, and its steps.
type isoWay struct {
	via   app.ISOVia
	boots string
	steps []string
}

var isoWays = []isoWay{
	{app.ISOByNetwork, "Pxe", []string{"before", "off", "permit", "boot-network", "on", "read"}},
	{app.ISOByMedia, "Cd", []string{"before", "off", "permit", "boot-cd", "boot-from-cd", "on", "read"}},
}

func TestBootISO(t *testing.T) {
	for _, way := range isoWays {
		t.Run(string(way.via), func(t *testing.T) {
			t.Parallel()
			r, c := ready(t)
			r.start("")
			img := putISO(r, isoName, bootCD(true, true))
			id := r.verb(machineName, api.BootISO, app.ISOSpec{Image: isoName, Via: way.via})
			if n := r.await(newsOver); n.State != "done" {
				t.Fatalf("it is %s\n%s", n.State, r.story())
			}
			w, m := r.workflow(id), r.machine(machineName)
			var steps []string
			for _, s := range w.Steps {
				steps = append(steps, s.ID)
			}
			if diff := cmp.Diff(way.steps, steps); diff != "" {
				t.Errorf("steps: want - got +\n%s", diff)
			}
			if m.State != app.StateISO || m.ISO == nil || m.ISO.ImageID != img.ID || m.ISO.Via != way.via || m.ISO.Before != app.StateReady || c.seen().Boots != way.boots {
				t.Errorf("it is %s, %+v, booted %s", m.State, m.ISO, c.seen().Boots)
			}
			if s := c.script(t.Context(), c.mac.Hyphen()); isoRE.MatchString(s) || bootDataRE.MatchString(s) { // case 65
				t.Errorf("once the image runs, a restart loads it again:\n%s", s)
			}
			refusedAs(t, r.call(http.MethodDelete, "/api/v1/images/"+isoName, nil, nil), app.Conflict, "image-in-use")
			for _, v := range []api.Verb{api.Commission, api.Rescue} {
				r.refused(v, struct{}{}, app.Conflict, "wrong-state")
			}
			r.refused(api.BootISO, app.ISOSpec{Image: isoName}, app.Conflict, "wrong-state")
			if medium(c) != (way.via == app.ISOByMedia) {
				t.Errorf("its virtual drive holds %v", medium(c))
			}
			r.verb(machineName, api.ExitISO, nil)
			if n := r.await(newsOver); n.State != "done" {
				t.Fatalf("leaving is %s\n%s", n.State, r.story())
			}
			if m := r.machine(machineName); m.State != app.StateReady || m.ISO != nil || c.bmc.PowerState() != "Off" || medium(c) {
				t.Errorf("after it: %s, %+v, power %s, a medium %v", m.State, m.ISO, c.bmc.PowerState(), medium(c))
			}
			r.must(http.MethodDelete, "/api/v1/images/"+isoName, nil, nil)
		})
	}
}

func refusedAs(t *testing.T, err error, code app.Code, reason string) {
	t.Helper()
	if e, ok := app.AsError(err); !ok || e.Code != code || e.Reason != reason || e.WayOut == "" {
		t.Errorf("%v, want %s %s with a way out", err, code, reason)
	}
}

// medium reports whether the machine's virtual CD drive holds one.
func medium(c *computer) bool {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.bmc.URL()+"/redfish/v1/Managers/1/VirtualMedia/CD", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.SetBasicAuth("admin", bmcPassword)
	res, err := client(c.bmc.SPKI()).Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	var drive struct{ Inserted bool }
	if err := json.NewDecoder(res.Body).Decode(&drive); err != nil || res.StatusCode != http.StatusOK {
		c.t.Fatal(res.Status, err)
	}
	return drive.Inserted
}

func TestBootISORefusals(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	putISO(r, isoName, bootCD(true, true))
	putISO(r, "uefi-only", bootCD(false, true))
	putISO(r, "data", bootCD(false, false))
	for _, x := range []struct {
		spec   app.ISOSpec
		code   app.Code
		reason string
	}{
		{app.ISOSpec{}, app.InvalidInput, ""},
		{app.ISOSpec{Image: isoName, Via: "floppy"}, app.InvalidInput, ""},
		{app.ISOSpec{Image: "nothing"}, app.NotFound, "image-not-found"},
		{app.ISOSpec{Image: imageName}, app.Unsupported, "image-not-iso"},
		{app.ISOSpec{Image: "data"}, app.Unsupported, "iso-not-bootable"},
		{app.ISOSpec{Image: "uefi-only"}, app.Unsupported, "iso-other-firmware"}, // it was commissioned by BIOS
	} {
		r.refused(api.BootISO, x.spec, x.code, x.reason)
	}
	r.refused(api.ExitISO, struct{}{}, app.Conflict, "wrong-state")
	r.post(api.Lock, api.ReasonOptions{Reason: "holds the only copy"})
	r.refused(api.BootISO, app.ISOSpec{Image: isoName}, app.Conflict, "machine-locked")
	r.post(api.Unlock, struct{}{})
	r.must(http.MethodPost, "/api/v1/machines", api.EnrollInput{Name: "bare", MACs: []app.MAC{"00:00:5e:00:53:77"}}, nil)
	refusedAs(t, r.call(http.MethodPost, "/api/v1/machines/bare/boot-iso", app.ISOSpec{Image: isoName}, nil), app.Unsupported, "no-bmc")
	r.stop()
	turnOff(t, r.dir)
	r.start("")
	r.refused(api.BootISO, app.ISOSpec{Image: isoName, Via: app.ISOByNetwork}, app.Conflict, "no-subnet-on")
	if got := c.seen(); got.Boots != "" || got.Offs != 0 {
		t.Errorf("a refusal touched its power: %+v", got)
	}
}

// turnOff turns off the subnet that putSubnet made, which the API leaves alone for what it is.
func turnOff(t *testing.T, dir string) {
	t.Helper()
	syscall.ForkLock.RLock() // a process forked meanwhile would hold the store's lock until it became another program
	defer syscall.ForkLock.RUnlock()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	all, err := db.ListSubnets(t.Context())
	for i := range all {
		all[i].Mode = app.SubnetOff
		err = errors.Join(err, db.PutSubnet(t.Context(), &all[i]))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A deployed machine needs a word more; it goes back to its disk and runs on, or is what its installer made of it.
func TestBootISOOnADeployedMachine(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	r.deployed()
	putISO(r, isoName, bootCD(true, true))
	r.refused(api.BootISO, app.ISOSpec{Image: isoName}, app.Conflict, "machine-deployed")
	in := func() {
		t.Helper()
		r.verb(machineName, api.BootISO, app.ISOSpec{Image: isoName, Via: app.ISOByNetwork, OverDeployed: true})
		if n := r.await(newsOver); n.State != "done" {
			t.Fatalf("it is %s\n%s", n.State, r.story())
		}
	}
	out := func(o api.ExitISOOptions) app.Machine {
		t.Helper()
		r.verb(machineName, api.ExitISO, o)
		if n := r.await(newsOver); n.State != "done" {
			t.Fatalf("leaving is %s\n%s", n.State, r.story())
		}
		return r.machine(machineName)
	}
	in()
	if m := out(api.ExitISOOptions{}); m.State != app.StateDeployed || m.Deployment == nil || c.bmc.PowerState() != "On" || c.seen().Boots != "Pxe Hdd Pxe Hdd" {
		t.Errorf("after it: %s, %+v, power %s, booted %s", m.State, m.Deployment, c.bmc.PowerState(), c.seen().Boots)
	}
	in()
	offs := c.seen().Offs
	if m := out(api.ExitISOOptions{Installed: true}); m.State != app.StateDeployed || m.Deployment != nil || !strings.Contains(m.StateReason, isoName) || len(m.OwnDisks) != 1 || c.seen().Offs != offs {
		t.Errorf("after an installation: %s (%s), %+v, %d disks, %d times off", m.State, m.StateReason, m.Deployment, len(m.OwnDisks), c.seen().Offs-offs)
	}
	in()
	r.verb(machineName, api.Release, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the release is %s\n%s", n.State, r.story())
	}
	if m := r.machine(machineName); m.State != app.StateReady || m.ISO != nil || len(m.OwnDisks) != 0 {
		t.Errorf("released: %s, %+v, %d disks", m.State, m.ISO, len(m.OwnDisks))
	}
}

// A boot that is given up leaves the machine as it was, and nothing to read.
func TestBootISOAborted(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	held, goOn := make(chan struct{}), make(chan struct{})
	c.hold = func(ctx context.Context, _ string) {
		close(held)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	}
	r.start("")
	putISO(r, isoName, bootCD(true, true))
	r.verb(machineName, api.BootISO, app.ISOSpec{Image: isoName, Via: app.ISOByNetwork})
	<-held
	url := isoRE.FindStringSubmatch(c.script(t.Context(), c.mac.Hyphen()))
	r.post(api.Abort, api.ReasonOptions{Reason: "the wrong one"})
	if n := r.await(newsOver); n.State != "aborted" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	close(goOn)
	if m := r.machine(machineName); m.State != app.StateReady || m.ISO != nil || m.WorkflowID != "" || c.bmc.PowerState() != "Off" {
		t.Errorf("it is %s, %+v, power %s", m.State, m.ISO, c.bmc.PowerState())
	}
	if s := c.script(t.Context(), c.mac.Hyphen()); isoRE.MatchString(s) || len(url) != 2 {
		t.Errorf("it is offered again, or never was: %v\n%s", url, s)
	}
}

// The process is killed at each instant of each step; each time it comes back and goes on, and nothing was done twice.
func TestBootISOKilled(t *testing.T) {
	for _, way := range isoWays {
		instants := []string{"before start boot-iso", "after start boot-iso", "before end boot-iso", "after end boot-iso"}
		for _, s := range way.steps {
			instants = append(instants, "before intent "+s, "after intent "+s, "before result "+s)
		}
		for _, at := range instants {
			t.Run(string(way.via)+"/"+at, func(t *testing.T) {
				t.Parallel()
				way.killedAt(t, at)
			})
		}
	}
}

func (way isoWay) killedAt(t *testing.T, at string) {
	r, c := ready(t)
	r.start("")
	putISO(r, isoName, bootCD(true, true))
	r.stop()
	r.start(at)
	spec := app.ISOSpec{Image: isoName, Via: way.via}
	started, life := make(chan error, 1), r.last
	go func() {
		started <- r.callOf(life, http.MethodPost, "/api/v1/machines/"+machineName+"/"+string(api.BootISO), spec, nil)
	}()
	r.await(newsAt)
	r.kill()
	<-started // answered, or cut off by the kill
	r.start("")
	if at == "before start boot-iso" {
		r.verb(machineName, api.BootISO, spec)
	}
	if at != "after end boot-iso" {
		r.await(newsOver)
	}
	var all api.List[workflow.Workflow]
	r.must(http.MethodGet, "/api/v1/workflows?machine="+machineName+"&verb=boot-iso", nil, &all)
	m := r.machine(machineName)
	if len(all.Items) != 1 || all.Items[0].State != workflow.Done || m.State != app.StateISO || m.ISO == nil || m.WorkflowID != "" {
		t.Errorf("%d workflows, the machine is %s, %+v\n%s", len(all.Items), m.State, m.ISO, r.story())
	}
	if got := c.seen(); got.Boots != way.boots {
		t.Errorf("it booted %s", got.Boots)
	}
}
