package site_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/agenttest"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

const bmcPassword = "bmc password"

// computer is a machine without hardware: a BMC that speaks Redfish over HTTPS, firmware that netboots over HTTP, the
// agent that speaks its protocol over TLS, and an installed system that calls home. It outlives the appliance.
type computer struct {
	t    *testing.T
	rig  *rig
	mac  app.MAC
	uuid string
	bmc  *virtual.Machine
	fake *virtual.Fake
	// hold, when set before power-on, is called by the agent inside each command of that kind; it returns when the
	// command may end.
	hold func(ctx context.Context, kind string)
	// refuse, when set before power-on, is why the ramdisk does not jump into the system.
	refuse *agentv1.Error
	// cards are further ports that its inventory lists.
	cards []app.MAC
	// firmware is how it boots; "" is a BIOS.
	firmware app.Firmware
	// stuck, when set before power-on, keeps its firmware from starting a CD.
	stuck bool
	// tester, when set, makes its commissioning tests in place of the simulated ones.
	tester agent.Handler
	// twin, when set, is the UUID of another machine with the same MAC address, which answers in its place.
	twin string

	wg   sync.WaitGroup
	stop context.CancelFunc // of the current power-on; only the BMC's power loop touches it

	mu    sync.Mutex // protects what follows
	boots []string   // how each power-on went: "Pxe", "Hdd"
	offs  int
	runs  map[string]int // commands the agent ran, by kind
	keys  []string       // their keys, in order
	hangs bool           // a system that is entered by kexec hangs, whenever that is
	home  string         // the address the seed on the disk says to call; "": no system is installed
	homes int            // calls that were answered
	isos  int            // CD images that a loader read to the end of what it starts
	sim   *agenttest.Sim
	boot  *agentv1.BootData // of the current netboot
	fails map[string]error  // commands of these kinds end so
	turns chan struct{}     // closed and replaced when something above changed
}

// newComputer makes a machine that is off.
func newComputer(t *testing.T, r *rig, n int) *computer {
	t.Helper()
	c := &computer{t: t, rig: r, mac: app.MAC(fmt.Sprintf("00:00:5e:00:53:%02x", n)), uuid: fmt.Sprintf("01234567-89ab-cdef-0123-4567%08x", n),
		runs: map[string]int{}, turns: make(chan struct{})}
	c.fake = &virtual.Fake{OnPowerOn: c.on, OnPowerOff: c.off}
	var err error
	c.bmc, err = virtual.New(virtual.Config{Name: fmt.Sprintf("computer%d", n), UUID: app.UUID(c.uuid), Serial: fmt.Sprintf("SIM%04d", n), Password: bmcPassword,
		NICs: []virtual.NIC{{MAC: c.mac, Netdev: "none"}}, Hypervisor: c.fake})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.bmc.Run(context.Background()) }()
	t.Cleanup(func() {
		c.bmc.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.wg.Wait()
	})
	return c
}

func (c *computer) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.turns)
	c.turns = make(chan struct{})
}

// until waits for something to be so.
func (c *computer) until(what string, so func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		c.mu.Lock()
		ok, turns := so(), c.turns
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-turns:
		case <-ctx.Done():
			c.t.Fatalf("waiting in vain: %s", what)
		}
	}
}

// on is called by the BMC before it says On.
func (c *computer) on(target string) {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.change(func() { c.boots = append(c.boots, target) })
	c.wg.Go(func() {
		if target == string(virtual.Pxe) && c.netboot(ctx) {
			return
		}
		if target == string(virtual.Cd) {
			if boot := c.bootCD(); boot != nil {
				c.ramdisk(ctx, boot)
				return
			}
		}
		c.system(ctx, false)
	})
}

// off is called by the BMC when the power goes. Once it is counted, nothing of the machine runs.
func (c *computer) off() {
	c.stop()
	c.wg.Wait()
	c.crash()
	c.change(func() { c.offs++ })
}

// crash ends what runs in the ramdisk.
func (c *computer) crash() {
	c.mu.Lock()
	sim := c.sim
	c.sim, c.boot = nil, nil
	c.mu.Unlock()
	if sim != nil {
		if err := sim.Crash(); err != nil {
			c.t.Error(err)
		}
	}
}

// patiently calls f with each process of the appliance in turn until it says that it got its answer.
func (c *computer) patiently(ctx context.Context, f func() bool) bool {
	for last := (*process)(nil); ; {
		p, err := c.rig.serving(ctx, last)
		if err != nil {
			return false
		}
		if f() {
			return true
		}
		last = p
	}
}

// fetch asks the boot listener, again and again as firmware does while no answer comes; status 0: the process that served
// when it began is gone, or ctx ended.
func (c *computer) fetch(ctx context.Context, method, url, body string) (status int, answer []byte) {
	c.whileServed(ctx, func() bool {
		status, answer = c.fetchOnce(ctx, method, url, body)
		return status != 0
	})
	return status, answer
}

// whileServed calls f until it says that it got an answer, with a pause between, for as long as the process serves that
// served at first.
func (c *computer) whileServed(ctx context.Context, f func() bool) bool {
	first, _ := c.rig.now()
	for !f() {
		p, changed := c.rig.now()
		if p == nil || p != first {
			return false
		}
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-changed:
		case <-pause.C:
		case <-ctx.Done():
			return false
		}
		pause.Stop()
	}
	return true
}

func (c *computer) fetchOnce(ctx context.Context, method, url, body string) (status int, answer []byte) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0, nil
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, answer
}

// script is what iPXE is told to do on a port with this MAC.
func (c *computer) script(ctx context.Context, mac string) string {
	status, b := c.fetch(ctx, http.MethodGet, "http://"+c.rig.cfg.Boot+"/boot/script?mac="+mac, "")
	if status != http.StatusOK {
		return ""
	}
	return string(b)
}

var bootDataRE = regexp.MustCompile(`(?m)^initrd --name \S+ (http://\S+/bootdata\.cpio) `)

// netboot does what the script says: it starts the agent, or gives false for a disk boot.
func (c *computer) netboot(ctx context.Context) (ramdisk bool) {
	var cpio []byte
	var iso string
	ok := c.patiently(ctx, func() bool {
		s := c.script(ctx, c.mac.Hyphen())
		if m := isoRE.FindStringSubmatch(s); m != nil {
			iso = m[1]
			return true
		}
		m := bootDataRE.FindStringSubmatch(s)
		if m == nil {
			return s != ""
		}
		status, b := c.fetch(ctx, http.MethodGet, m[1], "")
		cpio = b
		return status == http.StatusOK
	})
	if !ok {
		return true // the power went, or the test is over
	}
	if iso != "" {
		c.readISO(ctx, iso)
		return true
	}
	if cpio == nil {
		return false
	}
	boot, err := readBootData(cpio)
	if err != nil {
		c.t.Error(err)
		return true
	}
	c.ramdisk(ctx, boot)
	return true
}

func (c *computer) ramdisk(ctx context.Context, boot *agentv1.BootData) {
	uuid := c.uuid
	if c.twin != "" {
		uuid = c.twin
	}
	sim := agenttest.NewSim(agenttest.SimConfig{
		Boot: boot, State: filepath.Join(c.t.TempDir(), "run"), Handlers: c.handlers(), Host: agent.Host{BootID: newBootID(), MACs: []string{string(c.mac)}, UUID: uuid, Firmware: cmp.Or(string(c.firmware), "bios")},
		Leave: func(string) {
			if c.refuse == nil {
				c.wg.Go(func() { c.crash(); c.system(ctx, true) })
			}
		},
	})
	if ctx.Err() != nil {
		return
	}
	c.change(func() { c.sim, c.boot = sim, boot })
	if err := sim.Start(); err != nil {
		c.t.Error(err)
	}
}

// failing gives the error that commands of a kind end with.
func (c *computer) failing(kind string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fails[kind]
}

// handlers are the default ones, counted, with this machine's identity and disk.
func (c *computer) handlers() map[string]agent.Handler {
	all := maps.Clone(agenttest.DefaultHandlers())
	if c.tester != nil {
		all[agentv1.KindTest] = c.tester
	}
	for kind, h := range all {
		all[kind] = func(ctx context.Context, cmd agentv1.Command, p func(agentv1.ProgressReport)) (any, error) {
			c.change(func() { c.runs[kind]++; c.keys = append(c.keys, cmd.Key) })
			if c.hold != nil {
				c.hold(ctx, kind)
			}
			if err := c.failing(kind); err != nil {
				return nil, err
			}
			result, err := h(ctx, cmd, p)
			switch kind {
			case agentv1.KindInventory:
				inv := result.(agentv1.Inventory)
				inv.Firmware, inv.System.UUID, inv.NICs[0].MAC = cmp.Or(string(c.firmware), "bios"), c.uuid, string(c.mac)
				for _, mac := range c.cards {
					inv.NICs = append(inv.NICs, agentv1.NIC{Name: "ens1", MAC: string(mac)})
				}
				result = inv
			case agentv1.KindConfigure:
				c.install(cmd.Payload)
			case agentv1.KindKexecLoad:
				if c.refuse != nil {
					result = agentv1.KexecResult{Refused: c.refuse}
				}
			}
			return result, err
		}
	}
	return all
}

var homeRE = regexp.MustCompile(`url='(http://[^']+)'`)

// install keeps what the seed says.
func (c *computer) install(payload json.RawMessage) {
	var p agentv1.Configure
	if err := json.Unmarshal(payload, &p); err != nil {
		c.t.Error(err)
	}
	m := homeRE.FindSubmatch(p.Seed["vendor-data"])
	if m == nil {
		c.t.Errorf("the seed names no address to call: %s", p.Seed["vendor-data"])
		return
	}
	c.change(func() { c.home = string(m[1]) })
}

// system is the installed one: it calls home. An empty disk is silent, and so is a system that hangs.
func (c *computer) system(ctx context.Context, byKexec bool) {
	c.mu.Lock()
	home, hung := c.home, byKexec && c.hangs
	c.mu.Unlock()
	if home == "" || hung {
		return
	}
	id := newBootID()
	c.patiently(ctx, func() bool {
		status, _ := c.fetch(ctx, http.MethodPost, home, id)
		if status == http.StatusNoContent {
			c.change(func() { c.homes++ })
		}
		return status == http.StatusNoContent
	})
}

// called waits until the machine's systems have called n times and got their answers. The appliance goes on before the last
// one arrives: a machine whose power goes meanwhile would have called once less.
func (c *computer) called(n int) {
	c.t.Helper()
	c.until(fmt.Sprintf("its system has called %d times", n), func() bool { return c.homes == n })
}

func newBootID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// readBootData finds the boot data in a newc cpio.
func readBootData(cpio []byte) (*agentv1.BootData, error) {
	for at := 0; at+110 <= len(cpio) && string(cpio[at:at+6]) == "070701"; {
		field := func(i int) int {
			b, _ := hex.DecodeString(string(cpio[at+6+8*i : at+14+8*i]))
			return int(binary.BigEndian.Uint32(append(make([]byte, 4-len(b)), b...)))
		}
		size, nameLen := field(6), field(11)
		body := (at + 110 + nameLen + 3) &^ 3
		if nameLen < 1 || body+size > len(cpio) {
			break
		}
		if string(cpio[at+110:at+110+nameLen-1]) == agentv1.BootDataPath {
			var d agentv1.BootData
			return &d, json.NewDecoder(bytes.NewReader(cpio[body : body+size])).Decode(&d)
		}
		at = (body + size + 3) &^ 3
	}
	return nil, fmt.Errorf("no %s in the first initrd", agentv1.BootDataPath)
}

// seen is what happened to a machine, for comparing.
type seen struct {
	Boots  string // targets of its power-ons, in order
	Offs   int
	Writes int
	Kexecs int
	Wipes  int
}

func (c *computer) seen() seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return seen{strings.Join(c.boots, " "), c.offs, c.runs[agentv1.KindWrite], c.runs[agentv1.KindKexecLoad], c.runs[agentv1.KindWipe]}
}

func (c *computer) ran(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[kind]
}

func (c *computer) ranKeys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.keys)
}
