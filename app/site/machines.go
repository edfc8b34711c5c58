package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/bootiso"
	"github.com/better-compute/bcd/app/metal/commission"
	"github.com/better-compute/bcd/app/metal/deploy"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/app/metal/power"
	"github.com/better-compute/bcd/app/metal/release"
	"github.com/better-compute/bcd/app/metal/rescue"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/images/catalog"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/web/api"
)

// storeTime bounds store work that nobody waits for.
const storeTime = 10 * time.Second

func now() time.Time { return time.Now() }

// registerDrivers makes the built-in drivers known.
func (s *Site) registerDrivers() error {
	var errs []error
	for _, def := range []driver.Definition{s.redfish.Definition(), drivers.IPXE(permits{s}), drivers.VirtualMediaBoot(cdBoots{s}), drivers.ImageStream(inRamdisk{}), drivers.Ramdisk(inRamdisk{})} {
		d, err := driver.Define(def)
		if err == nil {
			err = s.registry.Register(d, "")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// permits is the ipxe driver: a machine netboots while it has a permission.
type permits struct{ s *Site }

// PrepareRamdisk permits the next boot to run the ramdisk, for the workflow of the call's idempotency key.
func (p permits) PrepareRamdisk(ctx *driver.Context, spec driver.RamdiskSpec) error {
	m, err := p.s.db.Machine(ctx, spec.Machine)
	if err != nil {
		return err
	}
	workflow, _, ok := strings.Cut(strings.TrimPrefix(ctx.IdempotencyKey, "wf:"), ":")
	if !ok {
		return driver.Errorf(driver.CodeInvalidArgs, "a boot is permitted only as a step of a workflow")
	}
	a, err := p.s.address(m)
	if err != nil {
		return err
	}
	_, err = boots{p.s.agents, p.s.recorder.Record}.Mint(ctx, app.Boot{MachineID: m.ID, WorkflowID: workflow, Address: a.String()})
	return err
}

// PrepareInstance withdraws the permission: the next boot goes to the disk.
func (p permits) PrepareInstance(ctx *driver.Context, boot driver.InstanceBoot) error {
	return boots{p.s.agents, p.s.recorder.Record}.Revoke(ctx, boot.Machine)
}

// CleanUp has nothing of its own to remove: a permission belongs to a machine and ends with its workflow.
func (permits) CleanUp(*driver.Context) error { return nil }

// inRamdisk stands for the drivers that the agent carries. They run as steps of a workflow, on the machine, and cannot be
// called from here.
type inRamdisk struct{}

func notHere(what string) error {
	return driver.Errorf(driver.CodeUnsupported, "%s runs in the machine's ramdisk, as a step of a workflow", what)
}

// Deploy is refused.
func (inRamdisk) Deploy(*driver.Context, driver.DeploySpec) (driver.DeployResult, error) {
	return driver.DeployResult{}, notHere("image-stream")
}

// TearDown is refused.
func (inRamdisk) TearDown(*driver.Context, driver.TearDownOptions) error {
	return notHere("image-stream")
}

// Inspect is refused.
func (inRamdisk) Inspect(*driver.Context) (driver.Inventory, error) {
	return driver.Inventory{}, notHere("ramdisk")
}

// wireMachines makes the verbs.
func (s *Site) wireMachines(context.Context) error {
	s.ports = &metal.Ports{
		Machines: s.db, Agents: s.db, Boots: boots{s.agents, s.recorder.Record}, Flows: s.engine, Drivers: s.registry, Now: now, BootOrders: s.db, Certificates: s.db, Record: s.emit,
		Hardware: func(_ context.Context, m *app.Machine, call drivers.Options) (metal.Hardware, error) {
			return timed{s.registry.For(m, call).Hardware(), s.recorder.Record, m}, nil
		},
		Supports: func(_ context.Context, m *app.Machine, operations ...string) error {
			return s.registry.Check(m, operations...)
		},
		SiteAddress: func(ctx context.Context, m *app.Machine) (string, error) {
			a, err := s.addressForRamdisk(ctx, m)
			return a.String(), err
		},
		AskPort: func(ctx context.Context, mac app.MAC, owner, m *app.Machine) { s.ask(ctx, movedPort, mac, owner, m) },
	}
	s.ports.Verdict, s.ports.CD = s.verdict, bootCDs{s}
	s.ports.Register()
	s.openSerial()
	s.service = &service{
		ports: s.ports, serials: s.serials, db: s.db, flows: s.engine, record: s.emit, claim: s.claim, untold: s.untold, now: now, probe: s.probe, halt: s.halt, forget: s.forget,
		enroll: enroll.New(s.ports, enroll.Config{
			Network: s.db, Questions: s.db, Seal: s.seal, Forget: s.unseal, Bind: s.bind,
			Probe: func(ctx context.Context, b app.BMC) (driver.Card, error) {
				return s.registry.Probe(ctx, drivers.ProbeInput{BMC: b})
			},
			Try: func(ctx context.Context, b app.BMC, c *enroll.Credentials) (driver.Card, error) {
				in := drivers.ProbeInput{BMC: b}
				if c != nil {
					login := secret.Login(c.Username, c.Password)
					in.Login = &login
				}
				return s.registry.Probe(ctx, in)
			},
			Ref: secret.Ref, Unsettled: s.rotationUnsettled,
			Left: func(was *app.Machine) { s.redfish.Forget(was.BMC.Address) },
		}),
		commission: commission.New(s.ports),
		deploy: deploy.New(s.ports, deploy.Config{
			Trials: s.db, Silence: s.cfg.Silence,
			Images: s.db, IndexPath: catalog.IndexPath,
			PhoneHome: func(ctx context.Context, m *app.Machine, workflow string) (string, error) {
				a, err := s.addressForRamdisk(ctx, m)
				if err != nil {
					return "", err
				}
				return s.home.url(ctx, m, workflow, s.netboot.URL(a, ""))
			},
		}),
		release: release.New(s.ports), rescue: rescue.New(s.ports), iso: bootiso.New(s.ports, bootiso.Config{Images: s.db, MediaURL: s.mediaURL, Answered: func(_ context.Context, m *app.Machine) error {
			_, err := s.address(m)
			return err
		}}),
		power: power.New(s.ports), rotate: s.rotations(), query: s.query,
	}
	return nil
}

func (s *Site) seal(ctx context.Context, name string, c enroll.Credentials) (string, error) {
	return secret.Ref(name), s.vault.Put(ctx, name, secret.Login(c.Username, c.Password))
}

func (s *Site) unseal(ctx context.Context, ref string) error {
	name, ok := strings.CutPrefix(ref, secret.Ref(""))
	if !ok {
		return nil
	}
	return s.vault.Delete(ctx, name)
}

// halt ends all traffic to a machine's BMC.
func (s *Site) halt(m *app.Machine) {
	if m.BMC != nil {
		s.registry.Halt(m.BMC.Address)
	}
}

// forget drops the sessions on a machine's BMC and removes the credentials that were sealed for it.
func (s *Site) forget(ctx context.Context, m *app.Machine) error {
	if m.BMC == nil {
		return nil
	}
	s.redfish.Forget(m.BMC.Address)
	return s.forgetLogins(ctx, m.ID)
}

// forgetLogins removes all that was sealed for a machine alone: its login, one that took its place, and one that a rotation
// left unsettled. An operator's own secret stays.
func (s *Site) forgetLogins(ctx context.Context, machineID string) error {
	all, err := s.vault.List(ctx)
	if err != nil {
		return err
	}
	own := enroll.Secret(machineID)
	for _, x := range all {
		if x.Name == own || strings.HasPrefix(x.Name, own+".") {
			err = errors.Join(err, s.vault.Delete(ctx, x.Name))
		}
	}
	return err
}

// probe asks a BMC who it is, for the enrol form.
func (s *Site) probe(ctx context.Context, in api.BMCInput) (*api.Card, error) {
	pin := drivers.ProbeInput{BMC: app.BMC{Driver: in.Driver, Address: in.Address, CredentialRef: in.CredentialsRef, SPKI: in.SPKI, Options: in.Options}}
	if c := in.Credentials; c != nil {
		login := secret.Login(c.Username, c.Password)
		pin.Login = &login
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	card, err := s.registry.Probe(ctx, pin)
	if err != nil {
		e, ok := app.AsError(err)
		if !ok {
			return nil, err
		}
		return &api.Card{Error: e}, nil
	}
	return describe(card, in.SPKI)
}

// fetcher is the client that gets images by URL for a user. It refuses addresses that the user could not reach himself:
// loopback, link-local and multicast ones, and those of BMCs, by number or by name.
func (s *Site) fetcher() *http.Client {
	refused := func(address any) error {
		return app.Errorf(app.Forbidden, "address-refused", "%s is an address that nothing is fetched from", address).At("url").Do("serve the image from another host")
	}
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("checking %q: %w", address, err)
		}
		a := ap.Addr().Unmap()
		if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() || s.registry.IsBMC(a) {
			return refused(a)
		}
		return nil
	}}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(address); err == nil && s.registry.IsBMCHost(host) {
			return nil, refused(host) // a name may lead elsewhere by now than when it was remembered
		}
		return d.DialContext(ctx, network, address)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second}}
}
