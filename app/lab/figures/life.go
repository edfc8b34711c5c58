package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/bmc/virtual"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// node is the one machine of a life.
const node = "node-1"

// life is a machine's way through commission, deploys and releases, with what is measured on it.
type life struct {
	*session
	firmware app.Firmware
	http     bool // netboots by UEFI HTTP Boot
	kexec    bool
	driver   *lab.Driver
	site     *appliance
	boots    *boots

	agent, heartbeat []float64 // seconds: of every netboot, of every deploy
}

// bios measures a machine that boots by BIOS and enters its system by the firmware.
func (s *session) bios(ctx context.Context) error {
	return s.boot(ctx, &life{session: s, firmware: app.FirmwareBIOS}, "agent_seconds_bios", "iPXE of QEMU's network card", "heartbeat_seconds_reboot",
		"power-on of the installed disk to the first call of its system, cloud-init included, by GRUB and BIOS")
}

// uefi measures one that boots by UEFI and enters its system by kexec.
func (s *session) uefi(ctx context.Context) error {
	return s.boot(ctx, &life{session: s, firmware: app.FirmwareUEFI, kexec: true}, "agent_seconds_uefi_pxe", "OVMF, TFTP, snponly.efi", "heartbeat_seconds_kexec",
		"the agent's jump to the first call of the installed system, cloud-init included")
}

// uefiHTTP measures one that netboots without a loader.
func (s *session) uefiHTTP(ctx context.Context) error {
	return s.boot(ctx, &life{session: s, firmware: app.FirmwareUEFI, http: true}, "agent_seconds_uefi_http", "OVMF's own HTTP Boot of the machine's program", "", "")
}

// boot lives a life for the figures that are wanted of it.
func (s *session) boot(ctx context.Context, l *life, agent, loader, heartbeat, what string) error {
	deploys := 0
	if heartbeat != "" && s.wantsAny(heartbeat) {
		deploys = s.Boots
	}
	if err := l.run(ctx, deploys); err != nil {
		return err
	}
	s.note("%s: power-on to the agent's session; server ramdisk, %s, HTTP; 2 vCPUs in software emulation, 1280 MiB, virtio-net; median of %s", agent, loader, list(l.agent, 1))
	s.note("%s: seconds after power-on in the last boot: %s", agent, l.boots.last())
	s.put(agent, median(l.agent), 1)
	if deploys > 0 {
		s.note("%s: %s; median of %s", heartbeat, what, list(l.heartbeat, 1))
		s.put(heartbeat, median(l.heartbeat), 1)
	}
	return nil
}

// peaks are of the deploys before, or of one for them alone.
func (s *session) peaks(ctx context.Context) error {
	if len(s.rss) == 0 {
		if err := (&life{session: s, firmware: app.FirmwareBIOS}).run(ctx, 1); err != nil {
			return err
		}
	}
	s.note("rss_deploy_bytes: highest VmRSS (VmHWM) of `bcd site`, a process of its own, during a whole deploy of the Debian image; most of %v", s.rss)
	s.put("rss_deploy_bytes", most(s.rss), 0)
	s.note("agent_peak_bytes: highest resident memory of the agent's process when the image was written and read back, as it says itself; most of %v", s.hwm)
	s.put("agent_peak_bytes", most(s.hwm), 0)
	return nil
}

func most(v []int64) (m float64) {
	for _, x := range v {
		m = max(m, float64(x))
	}
	return m
}

// run makes machine and appliance and takes the machine through its life: commissioned once and deployed and released as
// often as said, or only commissioned.
func (l *life) run(ctx context.Context, deploys int) (err error) {
	img, err := l.osImage(ctx)
	if err != nil {
		return err
	}
	l.boots = &boots{}
	rack, err := lab.NewRack(lab.RackConfig{
		Dir: filepath.Join(l.Work, "machines"), Network: lab.NetworkConfig{Name: namespace}, OnLine: l.boots.line, Log: l.Log,
		Machines: []lab.MachineSpec{{Name: node, Firmware: l.firmware, HTTPBoot: l.http, Bus: virtual.NVMe}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rack.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	racked := make(chan error, 1)
	go func() { defer cancel(); racked <- rack.Run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-racked) }()
	if l.site, err = l.start(context.WithoutCancel(ctx), nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.site.stop()) }()
	l.driver = &lab.Driver{API: l.site.Client, Rack: rack, Say: l.say}
	if err := l.live(ctx, img.Path, deploys); err != nil {
		return fmt.Errorf("%w\nlast lines of the console:\n%s", err, rack.Tail(node, 15))
	}
	return nil
}

func (l *life) live(ctx context.Context, image string, deploys int) error {
	if err := l.driver.PrepareNetwork(ctx); err != nil {
		return err
	}
	if err := l.driver.Enroll(ctx, node); err != nil {
		return err
	}
	commissions := l.Boots
	if deploys > 0 {
		commissions = 1
		if _, err := l.driver.ImportImage(ctx, image); err != nil {
			return err
		}
	}
	for range commissions {
		if err := l.verb(ctx, api.Commission, nil, nil); err != nil {
			return err
		}
	}
	for range deploys {
		if err := l.deploy(ctx); err != nil {
			return err
		}
		if err := l.verb(ctx, api.Release, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// verb runs a verb that netboots, and notes how long the agent took to come.
func (l *life) verb(ctx context.Context, v api.Verb, options any, out *workflow.Workflow) error {
	w, err := l.driver.Verb(ctx, node, v, options)
	if err != nil {
		return err
	}
	agent, err := ended(w, "agent")
	if err != nil {
		return err
	}
	on, err := l.boots.before(agent)
	if err != nil {
		return err
	}
	l.agent = append(l.agent, agent.Sub(on).Seconds())
	if out != nil {
		*out = *w
	}
	return nil
}

// deploy notes besides how long the installed system took to call, and the memory of both ends.
func (l *life) deploy(ctx context.Context) error {
	if err := l.site.forget(); err != nil {
		return err
	}
	boot := app.BootReboot
	if l.kexec {
		boot = app.BootKexec
	}
	var w workflow.Workflow
	if err := l.verb(ctx, api.Deploy, app.DeploySpec{Image: lab.ImageName, Boot: boot}, &w); err != nil {
		return err
	}
	rss, err := l.site.memory("VmHWM")
	if err != nil {
		return err
	}
	var r agentv1.WriteResult
	for _, s := range w.Steps {
		if s.ID == "write" {
			err = json.Unmarshal(s.Result, &r)
		}
	}
	if err != nil || r.PeakRSS == 0 {
		return errors.Join(app.Errorf(app.Unavailable, "no-peak", "the agent did not tell its peak memory"), err)
	}
	l.rss, l.hwm = append(l.rss, rss), append(l.hwm, r.PeakRSS)
	return l.called(ctx, &w)
}

// called notes the time from entering the installed system to its first call.
func (l *life) called(ctx context.Context, w *workflow.Workflow) error {
	var m app.Machine
	if err := l.site.Call(ctx, http.MethodGet, "/api/v1/machines/"+node, nil, &m); err != nil {
		return err
	}
	if m.Deployment == nil || m.Deployment.PhonedHome.IsZero() {
		return app.Errorf(app.Unavailable, "no-heartbeat", "the installed system never called")
	}
	entered, err := l.boots.before(m.Deployment.PhonedHome)
	if l.kexec {
		entered, err = ended(w, "kexec")
	}
	if err != nil {
		return err
	}
	l.heartbeat = append(l.heartbeat, m.Deployment.PhonedHome.Sub(entered).Seconds())
	return nil
}

// ended tells when a step of a workflow ended.
func ended(w *workflow.Workflow, id string) (time.Time, error) {
	for _, s := range w.Steps {
		if s.ID == id && !s.Ended.IsZero() {
			return s.Ended, nil
		}
	}
	return time.Time{}, app.Errorf(app.Unavailable, "no-step", "%s has no step %q that ended", w.Verb, id)
}
