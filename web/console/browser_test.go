package console_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/browsertest"
	"github.com/better-compute/bcd/web/webtest"
)

type css = browsertest.CSS

func site(t *testing.T) *webtest.Site {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return webtest.New(t, db)
}

// browser opens a tab for the length of one of these tests.
func browser(t *testing.T) *browsertest.Tab { return browsertest.Open(t, 10*time.Minute) }

// login gives the browser a session.
func login(b *browsertest.Tab, url, cookie string) { b.SetCookie(url, api.CookieName, cookie) }

func TestBrowserSetsUpLogsInAndEnrolls(t *testing.T) {
	b, x := browser(t), site(t)
	url := x.Serve()
	code, err := x.Access.NewSetupCode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.Navigate(url+"/machines"), chromedp.WaitVisible(css("#f-code")))
	b.Shot("setup")
	b.Do(chromedp.SendKeys(css("#f-code"), strings.ToLower(code)), chromedp.SendKeys(css("#f-password"), webtest.Password),
		chromedp.Click(css("button.main")), chromedp.WaitVisible(css(".note.ok")))
	if s := b.Text(".note.ok"); !strings.Contains(s, "Welcome") {
		t.Errorf("notice %q", s)
	}
	b.Shot("overview-empty")
	b.Do(chromedp.Click(css(".who button")), chromedp.WaitVisible(css("#f-name")))
	b.Shot("login")
	b.Do(chromedp.SendKeys(css("#f-name"), "admin"), chromedp.SendKeys(css("#f-password"), webtest.Password),
		chromedp.Click(css("button.main")), chromedp.WaitVisible(css(".frame")))
	webtest.Demo(x, "")
	b.Do(chromedp.Navigate(url+"/machines/enroll"), chromedp.WaitVisible(css("#f-name")),
		chromedp.SendKeys(css("#f-name"), "rack3-node1"), chromedp.SendKeys(css(`[name="bmc.address"]`), "192.0.2.31"),
		chromedp.SendKeys(css(`[name="username"]`), "root"), chromedp.SendKeys(css(`[name="password"]`), "not a real one"),
		chromedp.Click(css(`button[value="test"]`)), chromedp.WaitVisible(css("#card .secret")))
	if s := b.Text("#card"); !strings.Contains(s, "first time") || !strings.Contains(s, "437XR1138R2") {
		t.Errorf("card %q", s)
	}
	b.Shot("enroll-tested")
	b.Do(chromedp.Click(css(`button[value="enroll"]`)), chromedp.WaitVisible(css("#live")))
	if s := b.Text("h1"); s != "rack3-node1" {
		t.Errorf("heading %q", s)
	}
	b.Shot("machine-enrolled")
	m, err := x.Store.Machine(t.Context(), "rack3-node1")
	if err != nil || m.State != app.StateEnrolled || m.BMC.Address != "192.0.2.31" {
		t.Errorf("machine %+v, %v", m, err)
	}
	b.Clean()
}

// shown is every page that people look at, on a site that webtest.Demo filled, by the name of its picture.
var shown = map[string]string{"overview": "/", "machines": "/machines", "machine-deploying": "/machines/m-2", "machine-deployed": "/machines/m-1", "machine-failed": "/machines/m-4", "machine-bmc": "/machines/m-1/bmc", "timeline": "/machines/m-2/timeline",
	"enroll": "/machines/enroll", "deploy": "/machines/m-3/deploy", "release": "/machines/m-1/release", "discovered": "/discovered", "accept": "/discovered/00:00:5e:00:53:77", "images": "/images",
	"workflows": "/workflows", "workflow": "/workflows/w-1", "workflow-interrupted": "/workflows/w-3", "certificate": "/workflows/w-4/certificate", "certificates": "/certificates", "machine-ready": "/machines/m-3", "machine-enrolled": "/machines/m-5", "error": "/machines/m-none", "system-network": "/machines/m-3/network", "network": "/network", "drivers": "/drivers", "plugin": "/plugins/acme-bmc", "plugin-refused": "/plugins/bcx-ipmi", "profiles": "/profiles", "profile": "/profiles/edit/r640", "approvals": "/approvals", "access": "/access",
	"settings": "/settings", "health": "/health", "events": "/events"}

// Every page in both palettes, with hostile text: nothing runs, nothing breaks the policy, nothing scrolls sideways.
func TestBrowserShowsEveryPage(t *testing.T) {
	b, x := browser(t), site(t)
	wire := ""
	if os.Getenv("BCD_SCREENSHOTS") == "" {
		wire = webtest.Hostile
	}
	webtest.Demo(x, wire)
	x.Plugins.Text = wire
	url := x.Serve()
	login(b, url, x.As(app.RoleAdmin))
	for name, path := range shown {
		for _, palette := range []string{"light", "dark"} {
			b.Palette(palette)
			b.Do(chromedp.Navigate(url+path), chromedp.WaitVisible(css("#main")))
			b.Shot(name + "-" + palette)
			b.Fits(path, ".nothing")
		}
		b.Window(390, 844)
		b.Do(chromedp.Navigate(url+path), chromedp.WaitVisible(css("#main")))
		b.Shot(name + "-phone")
		b.Fits(path+" on a phone", ".scroll")
		b.Window(1360, 900)
	}
	b.Clean("status of 404") // of the page about an error
}

// Every page can be read and used without a mouse, without sight and with weak eyes, as far as a program can tell: axe-core
// finds nothing, in both palettes and on a phone.
func TestBrowserFindsNoBarrier(t *testing.T) {
	b, x := browser(t), site(t)
	axe := b.Axe()
	webtest.Demo(x, "said on the wire")
	url := x.Serve()
	for _, palette := range []string{"light", "dark"} {
		b.Palette(palette)
		b.Do(chromedp.Navigate(url+"/login"), chromedp.WaitVisible(css("#main")))
		b.Passable("/login, "+palette, axe)
	}
	login(b, url, x.As(app.RoleAdmin))
	for _, path := range shown {
		b.Do(chromedp.Navigate(url+path), chromedp.WaitVisible(css("#main")))
		for _, palette := range []string{"light", "dark"} {
			b.Palette(palette)
			b.Passable(path+", "+palette, axe)
		}
		b.Window(390, 844)
		b.Passable(path+" on a phone", axe)
		b.Window(1360, 900)
	}
}

// A keyboard is enough: the first stop leads past the navigation, each further one is seen, and the last button is reached.
func TestBrowserIsUsedByKeyboard(t *testing.T) {
	b, x := browser(t), site(t)
	webtest.Demo(x, "said on the wire")
	url := x.Serve()
	login(b, url, x.As(app.RoleAdmin))
	for _, c := range []struct{ page, last string }{{"/machines/m-4", "SUMMARY"}, {"/machines", "BUTTON"}, {"/network", "BUTTON"}} {
		b.Do(chromedp.Navigate(url+c.page), chromedp.WaitVisible(css("#main")), chromedp.KeyEvent("\t"))
		b.Until(`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
		b.Do(chromedp.KeyEvent("\r"))
		b.Until(`document.activeElement.id === "main"`)
		stops, last := 0, ""
		for ; stops < 200; stops++ {
			b.Do(chromedp.KeyEvent("\t"))
			at, err := browsertest.Evaluate[string](b, `(e => e === document.body ? "" : [e.tagName, getComputedStyle(e).outlineStyle, e.getClientRects().length > 0].join(" "))(document.activeElement)`)
			if err != nil {
				t.Fatal(err)
			}
			if at == "" || strings.HasPrefix(at, "HTML") {
				break
			}
			tag, _, _ := strings.Cut(at, " ")
			if last = tag; !strings.HasSuffix(at, "solid true") {
				t.Errorf("%s: stop %d is not seen: %s", c.page, stops, at)
			}
		}
		if stops < 5 || stops == 200 || last != c.last {
			t.Errorf("%s: %d stops, the last at %q", c.page, stops, last)
		}
	}
}

// A refused form comes back with what was typed, the mistake at its field, and the field ready to be typed into; also on a
// narrow window, and nothing of it is a barrier.
func TestBrowserShowsARefusalAtItsField(t *testing.T) {
	b, x := browser(t), site(t)
	axe := b.Axe()
	webtest.Demo(x, "said on the wire")
	url := x.Serve()
	login(b, url, x.As(app.RoleAdmin))
	for _, c := range []struct{ name, page, open, form, field, typed string }{
		{"bmc", "/machines/m-1/bmc", "", `form[action="/machines/m-1/bmc"]`, "acceptPin", "zz"},
		{"import", "/images", "", `form[action="/images/import"]`, "sha256", "beef"},
		{"subnet", "/network", "details.more:has([name=tftpBlockSize])", "details.more form:has([name=tftpBlockSize])", "tftpBlockSize", "9000"},
	} {
		in := c.form + ` [name="` + c.field + `"]`
		for _, width := range []int64{1360, 390} {
			b.Window(width, 900)
			b.Do(chromedp.Navigate(url+c.page), chromedp.WaitVisible(css("#main")))
			if c.open != "" {
				b.Do(chromedp.Click(css(c.open+" > summary")), chromedp.WaitVisible(css(in)))
			}
			if c.name == "import" {
				b.Do(chromedp.SendKeys(css(`form[action="/images/import"] [name="name"]`), "x"), chromedp.SendKeys(css(`form[action="/images/import"] [name="url"]`), "https://images.example/x"))
			}
			b.Do(chromedp.SetValue(css(in), c.typed), chromedp.Click(css(c.form+" button.main")), chromedp.WaitVisible(css(`[aria-invalid="true"]`)))
			b.Until(`document.activeElement.name === "` + c.field + `" && document.activeElement.value === "` + c.typed + `"`)
			for _, palette := range []string{"light", "dark"} {
				b.Palette(palette)
				b.Shot(fmt.Sprintf("refused-%s-%d-%s", c.name, width, palette))
				b.Passable(fmt.Sprintf("%s refused, %s, %d wide", c.page, palette, width), axe)
			}
			b.Fits(c.page+" refused", ".scroll")
		}
	}
}

// What is typed into the editor of a profile is checked on the way.
func TestBrowserChecksAProfileWhileItIsTyped(t *testing.T) {
	b, x := browser(t), site(t)
	webtest.Demo(x, "")
	url := x.Serve()
	login(b, url, x.As(app.RoleAdmin))
	b.Do(chromedp.Navigate(url+"/profiles/new"), chromedp.WaitVisible(css("#f-name")), chromedp.SendKeys(css("#f-name"), "gpu"),
		chromedp.SendKeys(css(`[name="hardware"]`), "drivers: {power: nothing}"), chromedp.WaitVisible(css("#check .note.bad")))
	if s := b.Text("#check"); !strings.Contains(s, "there is no driver") {
		t.Errorf("the check says %q", s)
	}
	b.Shot("profile-checked")
	b.Do(chromedp.SetValue(css(`[name="hardware"]`), "drivers: {power: redfish}"), chromedp.SendKeys(css(`[name="hardware"]`), " "), chromedp.WaitVisible(css("#check .note.ok")),
		chromedp.Click(css("button.main")), chromedp.WaitVisible(css(`a[href="/profiles/edit/gpu"]`)))
	if p, err := x.Store.Profile(t.Context(), "gpu"); err != nil || p.Drivers["power"].Driver != "redfish" {
		t.Errorf("saved %+v, %v", p, err)
	}
	b.Clean()
}

// The live part of a machine's page moves without a reload, and the page follows a change of state.
func TestBrowserFollowsAWorkflow(t *testing.T) {
	b, x := browser(t), site(t)
	webtest.Demo(x, "")
	url := x.Serve()
	login(b, url, x.As(app.RoleOperator))
	b.Do(chromedp.Navigate(url+"/machines/m-2"), chromedp.WaitVisible(css("#live progress[value='1384120320']")))
	w, err := x.Flows.Get(t.Context(), "w-1")
	if err != nil {
		t.Fatal(err)
	}
	w.Steps[3].Progress.Done = 2 << 30
	x.Flows.Put(*w)
	b.Do(chromedp.WaitVisible(css("#live progress[value='2147483648']")))
	b.Do(chromedp.SendKeys(css("#f-lock-reason"), "mine until"), chromedp.Click(css("details:has([action$=delete]) > summary")), chromedp.SendKeys(css("#f-delete-confirm"), "rack1"))
	if _, err := x.Store.UpdateMachine(t.Context(), "m-2", func(m *app.Machine) error { m.State, m.WorkflowID = app.StateDeployed, ""; return nil }); err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.WaitVisible(css(`a[href="/machines/m-2/release"]`)))
	b.Until(`document.getElementById("f-lock-reason").value === "mine until" && document.activeElement.id === "f-delete-confirm" && document.activeElement.value === "rack1"`)
	b.Clean()
}

// A BMC's new login is tried in place, what it says is shown beside the form, and the form is kept; a driver's version is picked.
func TestBrowserTriesABMCAndPicksADriver(t *testing.T) {
	b, x := browser(t), site(t)
	webtest.Demo(x, "")
	x.Service.Card = &api.Card{OK: true, SPKI: strings.Repeat("cd", 32), PinStatus: "differs", Vendor: "Example", Serial: "S77"}
	url := x.Serve()
	login(b, url, x.As(app.RoleAdmin))
	b.Do(chromedp.Navigate(url+"/machines/m-1/bmc"), chromedp.WaitVisible(css(`[name="username"]`)), chromedp.SendKeys(css(`[name="username"]`), "root"), chromedp.SendKeys(css(`[name="password"]`), "new"),
		chromedp.Click(css(`button[value="test"]`)), chromedp.WaitVisible(css("#card .note.ok")))
	b.Shot("bmc-tried")
	if s := b.Text("#card"); !strings.Contains(s, "S77") {
		t.Errorf("the card says %q", s)
	}
	b.Do(chromedp.Click(css(`button[value="save"]`)), chromedp.WaitVisible(css(`a[href="/machines/m-1/bmc"]`)))
	b.Do(chromedp.Navigate(url+"/drivers"), chromedp.WaitVisible(css(`form[action="/drivers/redfish/pick"] button`)))
	b.Shot("drivers-pick")
	b.Do(chromedp.Click(css(`form[action="/drivers/redfish/pick"] input[value=""] + button`)), chromedp.WaitVisible(css(".note.ok")))
	if len(x.Drivers.Picks()) != 1 {
		t.Errorf("picked %q", x.Drivers.Picks())
	}
	b.Clean()
}

// The script's upload: the raw body with its length and digest, then the page with the image.
func TestBrowserUploads(t *testing.T) {
	b, x := browser(t), site(t)
	url := x.Serve()
	login(b, url, x.As(app.RoleOperator))
	file := filepath.Join(t.TempDir(), "disk.raw")
	content := bytes.Repeat([]byte("bcd!"), 1<<20)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	b.Do(chromedp.Navigate(url+"/images"), chromedp.WaitVisible(css("#f-upload-name")),
		chromedp.SendKeys(css("#f-upload-name"), "debian-12"), chromedp.SendKeys(css("#f-upload-sha256"), hex.EncodeToString(sum[:])),
		chromedp.SetUploadFiles(css("#f-upload-file"), []string{file}), chromedp.Click(css("form[data-raw-upload] button[type=submit]")),
		chromedp.WaitVisible(css("td .chip.ok")))
	if x.Catalog.Read != int64(len(content)) || x.Catalog.In.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("read %d, %+v", x.Catalog.Read, x.Catalog.In)
	}
	x.Catalog.Err = app.Invalid("sha512", "does not match what came")
	b.Do(chromedp.SendKeys(css("#f-upload-name"), "other"), chromedp.SetUploadFiles(css("#f-upload-file"), []string{file}),
		chromedp.Click(css("form[data-raw-upload] button[type=submit]")), chromedp.WaitVisible(css("#f-upload-sha256[aria-invalid=true]")))
	if s := b.Text("#h-upload-sha256 .wrong"); !strings.Contains(s, "does not match") {
		t.Errorf("at the field it says %q", s)
	}
	x.Catalog.Err = app.Errorf(app.StorageFull, "storage-full", "12 GiB are needed and 3 GiB are free").Do("delete an image")
	b.Do(chromedp.SendKeys(css("#f-upload-name"), "other"), chromedp.SetUploadFiles(css("#f-upload-file"), []string{file}),
		chromedp.Click(css("form[data-raw-upload] button[type=submit]")), chromedp.WaitVisible(css("form[data-raw-upload] button:not([disabled])[type=submit]")),
		chromedp.WaitNotVisible(css("[data-upload] button")))
	if s := b.Text("[data-text]"); !strings.Contains(s, "3 GiB are free") || !strings.Contains(s, "delete an image") {
		t.Errorf("says %q", s)
	}
}
