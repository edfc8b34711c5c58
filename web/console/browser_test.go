package console_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

type css = chromedp.CSS

func site(t *testing.T) *webtest.Site {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return webtest.New(t, db)
}

// tab is a tab of Debian's Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context
	mu  sync.Mutex
	bad []string // exceptions, and errors such as a violated policy
}

// browser starts Chromium, or skips with the reason.
func browser(t *testing.T) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium on this machine: install the Debian package chromium to run the browser tests")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1360, 900))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, end := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.bad = append(b.bad, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" {
			b.bad = append(b.bad, "browser: "+e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// clean fails the test for each complaint of the browser.
func (b *tab) clean() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.bad {
		b.t.Error(s)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) text(sel css) string {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Text(sel))
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// shot keeps a picture of the page under the directory that BCD_SCREENSHOTS names.
func (b *tab) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("BCD_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// fits fails the test when the page is wider than the window.
func (b *tab) fits(what string) {
	b.t.Helper()
	wide, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("document.documentElement.scrollWidth > window.innerWidth"))
	if err != nil || wide {
		b.t.Errorf("%s scrolls sideways: %v", what, err)
	}
}

func (b *tab) palette(name string) {
	b.t.Helper()
	p := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, p); err != nil {
		b.t.Fatal(err)
	}
}

// login gives the browser a session.
func (b *tab) login(url, cookie string) {
	b.t.Helper()
	yes := true
	_, err := chromedp.Call(b.ctx, network.SetCookie, network.SetCookieParams{Name: api.CookieName, Value: cookie, URL: url, Path: "/", Secure: &yes, HTTPOnly: &yes, SameSite: "Lax"})
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestBrowserSetsUpLogsInAndEnrolls(t *testing.T) {
	b, x := browser(t), site(t)
	url := x.Serve()
	code, err := x.Access.NewSetupCode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(url+"/machines"), chromedp.WaitVisible(css("#f-code")))
	b.shot("setup")
	b.do(chromedp.SendKeys(css("#f-code"), strings.ToLower(code)), chromedp.SendKeys(css("#f-password"), webtest.Password),
		chromedp.Click(css("button.main")), chromedp.WaitVisible(css(".note.ok")))
	if s := b.text(".note.ok"); !strings.Contains(s, "Welcome") {
		t.Errorf("notice %q", s)
	}
	b.shot("overview-empty")
	b.do(chromedp.Click(css(".who button")), chromedp.WaitVisible(css("#f-name")))
	b.shot("login")
	b.do(chromedp.SendKeys(css("#f-name"), "admin"), chromedp.SendKeys(css("#f-password"), webtest.Password),
		chromedp.Click(css("button.main")), chromedp.WaitVisible(css(".frame")))
	webtest.Demo(x, "")
	b.do(chromedp.Navigate(url+"/machines/enroll"), chromedp.WaitVisible(css("#f-name")),
		chromedp.SendKeys(css("#f-name"), "rack3-node1"), chromedp.SendKeys(css(`[name="bmc.address"]`), "192.0.2.31"),
		chromedp.SendKeys(css(`[name="username"]`), "root"), chromedp.SendKeys(css(`[name="password"]`), "not a real one"),
		chromedp.Click(css(`button[value="test"]`)), chromedp.WaitVisible(css("#card .secret")))
	if s := b.text("#card"); !strings.Contains(s, "first time") || !strings.Contains(s, "437XR1138R2") {
		t.Errorf("card %q", s)
	}
	b.shot("enroll-tested")
	b.do(chromedp.Click(css(`button[value="enroll"]`)), chromedp.WaitVisible(css("#live")))
	if s := b.text("h1"); s != "rack3-node1" {
		t.Errorf("heading %q", s)
	}
	b.shot("machine-enrolled")
	m, err := x.Store.Machine(t.Context(), "rack3-node1")
	if err != nil || m.State != app.StateEnrolled || m.BMC.Address != "192.0.2.31" {
		t.Errorf("machine %+v, %v", m, err)
	}
	b.clean()
}

// Every page in both palettes, with hostile text: nothing runs, nothing breaks the policy, nothing scrolls sideways.
func TestBrowserShowsEveryPage(t *testing.T) {
	b, x := browser(t), site(t)
	wire := ""
	if os.Getenv("BCD_SCREENSHOTS") == "" {
		wire = webtest.Hostile
	}
	webtest.Demo(x, wire)
	url := x.Serve()
	b.login(url, x.As(app.RoleAdmin))
	for name, path := range map[string]string{"overview": "/", "machines": "/machines", "machine-deploying": "/machines/m-2", "machine-deployed": "/machines/m-1", "machine-failed": "/machines/m-4",
		"enroll": "/machines/enroll", "deploy": "/machines/m-3/deploy", "release": "/machines/m-1/release", "discovered": "/discovered", "accept": "/discovered/00:00:5e:00:53:77", "images": "/images",
		"workflows": "/workflows", "workflow": "/workflows/w-1", "workflow-interrupted": "/workflows/w-3", "network": "/network", "drivers": "/drivers", "profiles": "/profiles", "access": "/access",
		"settings": "/settings", "health": "/health", "events": "/events"} {
		for _, palette := range []string{"light", "dark"} {
			b.palette(palette)
			b.do(chromedp.Navigate(url+path), chromedp.WaitVisible(css("#main")))
			b.shot(name + "-" + palette)
			b.fits(path)
		}
		b.do(chromedp.EmulateViewport(390, 844))
		b.shot(name + "-phone")
		b.fits(path + " on a phone")
		b.do(chromedp.EmulateViewport(1360, 900))
	}
	b.clean()
}

// The live part of a machine's page moves without a reload, and the page follows a change of state.
func TestBrowserFollowsAWorkflow(t *testing.T) {
	b, x := browser(t), site(t)
	webtest.Demo(x, "")
	url := x.Serve()
	b.login(url, x.As(app.RoleOperator))
	b.do(chromedp.Navigate(url+"/machines/m-2"), chromedp.WaitVisible(css("#live progress[value='1384120320']")))
	w, err := x.Flows.Get(t.Context(), "w-1")
	if err != nil {
		t.Fatal(err)
	}
	w.Steps[3].Progress.Done = 2 << 30
	x.Flows.Put(*w)
	b.do(chromedp.WaitVisible(css("#live progress[value='2147483648']")))
	if _, err := x.Store.UpdateMachine(t.Context(), "m-2", func(m *app.Machine) error { m.State, m.WorkflowID = app.StateDeployed, ""; return nil }); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.WaitVisible(css(`a[href="/machines/m-2/release"]`)))
	b.clean()
}

// The script's upload: the raw body with its length and digest, then the page with the image.
func TestBrowserUploads(t *testing.T) {
	b, x := browser(t), site(t)
	url := x.Serve()
	b.login(url, x.As(app.RoleOperator))
	file := filepath.Join(t.TempDir(), "disk.raw")
	content := bytes.Repeat([]byte("bcd!"), 1<<20)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	b.do(chromedp.Navigate(url+"/images"), chromedp.WaitVisible(css("#f-upload-name")),
		chromedp.SendKeys(css("#f-upload-name"), "debian-12"), chromedp.SendKeys(css("#f-upload-sha256"), hex.EncodeToString(sum[:])),
		chromedp.SetUploadFiles(css("#f-upload-file"), []string{file}), chromedp.Click(css("form[data-raw-upload] button[type=submit]")),
		chromedp.WaitVisible(css("td .chip.ok")))
	if x.Catalog.Read != int64(len(content)) || x.Catalog.In.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("read %d, %+v", x.Catalog.Read, x.Catalog.In)
	}
	x.Catalog.Err = app.Errorf(app.StorageFull, "storage-full", "12 GiB are needed and 3 GiB are free").Do("delete an image")
	b.do(chromedp.SendKeys(css("#f-upload-name"), "other"), chromedp.SetUploadFiles(css("#f-upload-file"), []string{file}),
		chromedp.Click(css("form[data-raw-upload] button[type=submit]")), chromedp.WaitVisible(css("form[data-raw-upload] button:not([disabled])[type=submit]")),
		chromedp.WaitNotVisible(css("[data-upload] button")))
	if s := b.text("[data-text]"); !strings.Contains(s, "3 GiB are free") || !strings.Contains(s, "delete an image") {
		t.Errorf("says %q", s)
	}
}
