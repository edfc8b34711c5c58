package lab

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/better-compute/bcd/images/osimage"
	"github.com/better-compute/bcd/web/browsertest"
)

type css = browsertest.CSS

// What the person in front of the console types.
const (
	personPassword = "correct horse battery"
	personKey      = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEMsAd9qYjWNpQFgGwzHHQzy7s3Zf1EO1dFMUkiDx7PV person@lab"
	personArgs     = "bcd.lab=of-the-form"
	// personData makes the installed system show on its console what reached it.
	personData = "#cloud-config\nruncmd:\n- [sh, -c, '(cat /proc/cmdline /home/*/.ssh/authorized_keys /proc/net/bonding/uplink; ip -d link show storage; ip addr show storage) > /dev/ttyS0']\n"
	// personNetwork puts the machine's one port into a bond that carries a VLAN.
	personNetwork = `links:
- {name: lan0, kind: port, mac: "%s"}
- {name: uplink, kind: bond, members: [lan0], dhcp: true}
- {name: storage, kind: vlan, parent: uplink, vlan: 20, mtu: 1400, addresses: [198.51.100.10/24]}
`
)

// TestMainJobInTheBrowser is a person's whole job, by pages, forms and clicks alone, with a machine that boots, and with an
// appliance that is killed by SIGKILL in the middle of the write of the image: the page that the person looks at goes on by
// itself when the appliance is back, the agent goes on too, and nothing is written twice.
func TestMainJobInTheBrowser(t *testing.T) {
	b := newBench(t, "bcdt-browser")
	tab := browsertest.Open(t, 15*time.Minute)
	withNetplan := osimage.Options{Packages: []string{"netplan.io"}} // which makes bonds and VLANs of cloud-init's network-config
	img, err := osimage.Build(t.Context(), osimage.Config{Options: withNetplan, Cache: filepath.Join(b.work, "images"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	b.start()
	p := &person{b, tab, time.Now()}
	p.Palette("light")
	p.Window(1280, 900)
	p.comesIn()
	p.turnsTheNetworkOn()
	p.importsTheImage(img.Path)
	p.enrolls()
	p.commissions()
	p.setsTheNetwork()
	var arrived []func()
	for _, line := range []string{
		`BOOT_IMAGE=.*` + personArgs, `^ssh-ed25519 AAAAC3.* person@lab`,
		`^Currently Active Slave: lan0`, `vlan protocol 802.1Q id 20 `, `storage@uplink: .* mtu 1400 `, `inet 198.51.100.10/24 `,
	} {
		arrived = append(arrived, p.expect(line))
	}
	p.deploys()
	p.seesTheApplianceDie()
	p.seesItDeployed() // the system called home through the bond
	for _, wait := range arrived {
		wait()
	}
	p.Clean("net::ERR_", "status of 422") // while there was no appliance; the refused network
	c := NewClient(b.ready.URL, b.ready.SPKI)
	defer c.Close()
	if err := c.Login(t.Context(), AdminUser, personPassword); err != nil {
		t.Fatal(err)
	}
	b.wroteOnce(c)
}

// person works with the console of a bench.
type person struct {
	*bench
	*browsertest.Tab
	begun time.Time
}

// expect looks out for a line on the machine's console from now on, and gives the wait for it.
func (p *person) expect(pattern string) (arrived func()) {
	w := p.rack.Machine("node-1").Console().Watch(regexp.MustCompile(pattern))
	return func() {
		p.t.Helper()
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := w.Wait(ctx); err != nil {
			p.t.Fatalf("%v: the console never showed %q", err, pattern)
		}
	}
}

// did tells how long the job has taken up to here.
func (p *person) did(what string) { p.t.Logf("%6.1f s %s", time.Since(p.begun).Seconds(), what) }

func click(sel css) browsertest.Step          { return chromedp.Click(sel) }
func fill(sel css, s string) browsertest.Step { return chromedp.SendKeys(sel, s) }
func set(sel css, s string) browsertest.Step  { return chromedp.SetValue(sel, s) }
func see(sel css) browsertest.Step            { return chromedp.WaitVisible(sel) }

// says fails the test unless an element says all of the words.
func (p *person) says(sel css, words ...string) {
	p.t.Helper()
	s := p.Text(sel)
	for _, w := range words {
		if !strings.Contains(s, w) {
			p.t.Errorf("%s does not say %q but:\n%s", sel, w, s)
		}
	}
}

// comesIn makes the first administrator, logs out and logs in again.
func (p *person) comesIn() {
	p.Do(chromedp.Navigate(p.ready.URL), see("#f-code"))
	p.Shot("lab-01-setup")
	p.Do(fill("#f-code", p.ready.Code), fill("#f-password", personPassword), click("button.main"), see(".note.ok"))
	p.says("main", "Four things make the first machine")
	p.Shot("lab-02-overview")
	p.Do(click(".who button"), see("#f-name"), fill("#f-name", AdminUser), fill("#f-password", personPassword))
	p.Shot("lab-03-login")
	p.Do(click("button.main"), see(".who button"))
	p.did("logged in")
}

func (p *person) turnsTheNetworkOn() {
	n := p.rack.Network.Address()
	form := func(name string) css { return css(`form[action="/network/subnets"] [name="` + name + `"]`) }
	p.Do(click(`main a[href="/network"]`), see(form("cidr")))
	p.Shot("lab-04-network")
	p.Do(fill(form("cidr"), n.Masked().String()), fill(form("interface"), Bridge), fill(form("poolStart"), offset(n.Masked().Addr(), 100).String()),
		fill(form("poolEnd"), offset(n.Masked().Addr(), 199).String()), fill(form("dns"), n.Addr().String()), fill(form("ntp"), n.Addr().String()),
		fill(form("domain"), "lab.example"), click(`form[action="/network/subnets"] button.main`), see(`form[action$="/mode"] button.main`))
	p.says("main", "Nothing is answered.")
	p.Do(click(`form[action$="/mode"] button.main`), see("header .chip.ok"))
	p.says("main", "10.77.0.0/24", "answering")
	p.Shot("lab-05-network-on")
	p.did("subnet turned on")
}

func (p *person) importsTheImage(path string) {
	form := func(name string) css { return css(`form[action="/images/import"] [name="` + name + `"]`) }
	p.Do(click(`nav a[href="/images"]`), see(form("name")), fill(form("name"), ImageName), fill(form("path"), path))
	p.Shot("lab-06-images")
	p.Do(click(`form[action="/images/import"] button.main`), see("td .chip.busy"))
	p.Shot("lab-07-importing")
	p.Until(`document.querySelector("td .chip.ok, td .chip.bad")`)
	p.says("td:nth-child(2)", "ready")
	p.says("td:nth-child(3)", "BIOS, UEFI")
	p.Shot("lab-08-imported")
	p.did("image imported")
}

func (p *person) enrolls() {
	m := p.rack.Machine("node-1")
	p.Do(click(`nav a[href="/machines"]`), click(`main a[href="/machines/enroll"]`), see("#f-name"),
		fill("#f-name", "node-1"), fill(`[name="bmc.address"]`, m.URL()), fill(`[name="username"]`, BMCUser), fill(`[name="password"]`, "not "+BMCPassword),
		click(`button[value="test"]`), see("#card .note.bad"))
	p.says("#card", "refuses the user name or password", "What to do:")
	p.Shot("lab-09-test-refused")
	p.Do(set(`[name="password"]`, BMCPassword), click(`button[value="test"]`), see("#card .note.ok"))
	p.says("#card", "first time", m.SPKI(), "LAB0001")
	p.Shot("lab-10-test-connection")
	p.Do(click(`button[value="enroll"]`), see("#live"))
	p.says("h1", "node-1")
	p.says(".head", "enrolled")
	p.Shot("lab-11-enrolled")
	p.did("enrolled")
}

func (p *person) commissions() {
	p.Do(click(`form[action$="/commission"] button.main`), see("#live li.running"), see("#live li.done"))
	p.Shot("lab-12-commissioning")
	p.Until(`document.querySelector('.head a.main[href$="/deploy"]') || document.querySelector('#live .note.bad')`)
	p.says(".head", "ready", "power off")
	p.says("main", "LABDISK0001")
	p.Shot("lab-13-ready")
	p.did("commissioned")
}

// setsTheNetwork gives the system that will be installed a bond with a VLAN; a mistake is said first, and keeps what was
// typed.
func (p *person) setsTheNetwork() {
	text := fmt.Sprintf(personNetwork, MAC(0))
	p.Do(click(`main a[href$="/network"]`), see(`[name="network"]`), set(`[name="network"]`, strings.Replace(text, "[lan0]", "[lan7]", 1)),
		click(`form[action$="/network"] button.main`), see(".note.bad"))
	p.says(".note.bad", "there is no link", "lan7")
	p.Shot("lab-13-network-refused")
	p.Do(set(`[name="network"]`, text), click(`form[action$="/network"] button.main`), see(".note.ok"))
	p.says("main", "3 links")
	p.Do(click(`main a[href$="/network"]`), see("table"))
	p.says("table", "active-backup of lan0", "20 on uplink", "198.51.100.10/24")
	p.Shot("lab-13-network")
	p.Do(click(".crumb a:last-child"), see("#live"))
	p.did("network set")
}

func (p *person) deploys() {
	p.Do(click(`.head a.main[href$="/deploy"]`), see(`[name="image"]`), fill(`[name="hostname"]`, "web-1"), fill(`[name="kernelArgs"]`, personArgs),
		fill(`[name="sshKeys"]`, personKey), set(`[name="userData"]`, personData), set(`[name="boot"]`, "reboot"))
	p.says(`[name="image"]`, ImageName)
	p.says(`[name="disk"]`, "LABDISK0001")
	p.Shot("lab-14-deploy-form")
	p.Do(click("form button.main"), see("#live li.running"))
	p.Shot("lab-15-deploying")
}

// seesTheApplianceDie kills the appliance while a part of the image is written and more is to come, and waits until the page
// has noticed; then the appliance comes back on its data, and the page follows it again.
func (p *person) seesTheApplianceDie() {
	p.Window(1200, 900)
	p.Until(`(li => li?.innerText.includes("Write and read back") && (b => b && b.value > b.max / 5)(li.querySelector("progress")))` +
		`(document.querySelector("#live li.running"))`)
	p.View("lab-16-writing")
	p.kill()
	p.did("appliance killed")
	p.Do(see("#lost"))
	p.says("#live li.running", "Write and read back") // as it was
	p.Shot("lab-17-appliance-gone")
	p.start()
	p.did("appliance back")
	p.Do(chromedp.WaitNotVisible(css("#lost")))
	p.Shot("lab-18-appliance-back")
	p.did("page follows again")
}

// seesItDeployed waits for the end of the deploy and for what only the installed system can have said.
func (p *person) seesItDeployed() {
	p.Until(`document.querySelector('.head a[href$="/release"]') || document.querySelector('#live .note.bad')`)
	p.says(".head", "deployed", "power on")
	p.did("deployed")
	facts, err := p.facts()
	if err != nil {
		p.t.Fatal(err)
	}
	if facts["Host name"] != "web-1" || facts["Image"] != ImageName || !strings.HasSuffix(facts["Phoned home"], "UTC") ||
		facts["Heartbeat"] == "" || facts["Heartbeat"] == "never" || facts["Cold boot"] == "" {
		p.t.Errorf("the page shows %v", facts)
	}
	p.Shot("lab-19-deployed")
	p.Do(click(`nav a[href="/workflows"]`), see("table"))
	p.Shot("lab-20-workflows")
	p.Do(click(`nav a[href="/"]`), see(".tiles"))
	p.says(".tiles", "1", "deployed")
	p.Shot("lab-21-overview")
}

// facts reads the page's lists of facts.
func (p *person) facts() (map[string]string, error) {
	return browsertest.Evaluate[map[string]string](p.Tab,
		`Object.fromEntries([...document.querySelectorAll("dl.facts dt")].map(d => [d.innerText, d.nextElementSibling.innerText]))`)
}
