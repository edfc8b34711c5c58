// Package browsertest drives Debian's Chromium for tests: a tab that fails its test when the browser complains, and that
// keeps pictures of what it saw.
package browsertest

import (
	"context"
	"fmt"
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
)

// CSS selects elements of a page.
type CSS = chromedp.CSS

// Step is one act of a person, or a wait for what they would wait for.
type Step = chromedp.Action[chromedp.Void]

// Tab is a tab of a browser of its own.
type Tab struct {
	t   testing.TB
	ctx context.Context
	mu  sync.Mutex // protects bad
	bad []string   // exceptions, and errors such as a violated policy
}

// Open starts Chromium for at most limit, or skips the test with the reason. It ends with the test.
func Open(t testing.TB, limit time.Duration) *Tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("left out: no chromium on this machine; install the Debian package chromium to run the browser tests")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1360, 900),
		chromedp.WSURLReadTimeout(limit)) // its profile is chromedp's to remove, which knows of processes that outlive the first
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, end := context.WithTimeout(ctx, limit)
	t.Cleanup(end)
	b := &Tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *Tab) listen(ev any) {
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

// Clean fails the test for each complaint of the browser that has none of the words in it.
func (b *Tab) Clean(but ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for _, s := range b.bad {
		for _, word := range but {
			if strings.Contains(s, word) {
				continue next
			}
		}
		b.t.Error(s)
	}
}

// patience bounds what the browser does at once; what a machine takes longer for is waited for by Until.
const patience = 2 * time.Minute

// Do takes steps. A step that cannot be taken fails the test, with what the page shows.
func (b *Tab) Do(steps ...Step) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.fatal(err)
	}
}

// fatal ends the test with what the page shows.
func (b *Tab) fatal(err error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 10*time.Second)
	defer cancel()
	if page, terr := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText")); terr == nil {
		b.t.Fatalf("%v\nthe page shows:\n%.4000s", err, page)
	}
	b.t.Fatal(err)
}

// Text is what an element says.
func (b *Tab) Text(sel CSS) string {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Text(sel))
	if err != nil {
		b.fatal(err)
	}
	return s
}

// Until waits until a JavaScript expression is true, at most until the tab's limit.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[any](expression, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(0))); err != nil {
		b.fatal(err)
	}
}

// Shot keeps a picture of the whole page under the directory that BCD_SCREENSHOTS names.
func (b *Tab) Shot(name string) { b.t.Helper(); b.keep(name, chromedp.FullScreenshot(100)) }

// View keeps a picture of what the window shows, at the same place.
func (b *Tab) View(name string) { b.t.Helper(); b.keep(name, chromedp.CaptureScreenshot()) }

func (b *Tab) keep(name string, picture chromedp.Action[[]byte]) {
	b.t.Helper()
	dir := os.Getenv("BCD_SCREENSHOTS")
	if dir == "" {
		return
	}
	err := os.MkdirAll(dir, 0o755)
	var png []byte
	if err == nil {
		png, err = chromedp.Run(b.ctx, picture)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// tooWide names what is wider than its room: the page, or the parts of it that a selector finds. What is folded away is opened
// for the look and folded again.
const tooWide = `(() => {
	const folded = [...document.querySelectorAll("details:not([open])")];
	folded.forEach(d => d.open = true);
	const wide = [document.documentElement, ...document.querySelectorAll("%s")].filter(e => e.scrollWidth > e.clientWidth + 1);
	const out = wide.map(e => e.tagName + "." + e.className + " " + e.scrollWidth + " > " + e.clientWidth + ": " + e.innerText.slice(0, 60)).join("; ");
	folded.forEach(d => d.open = false);
	return out;
})()`

// Fits fails the test when the page is wider than the window, or one of the parts that a selector finds wider than its room.
func (b *Tab) Fits(what, parts string) {
	b.t.Helper()
	wide, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](fmt.Sprintf(tooWide, parts)))
	if err != nil || wide != "" {
		b.t.Errorf("%s scrolls sideways: %s %v", what, wide, err)
	}
}

// Palette makes the reader prefer "light" or "dark".
func (b *Tab) Palette(name string) {
	b.t.Helper()
	p := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, p); err != nil {
		b.t.Fatal(err)
	}
}

// Window makes the window as large as that, in CSS pixels.
func (b *Tab) Window(width, height int64) { b.Do(chromedp.EmulateViewport(width, height)) }

// SetCookie gives the browser a cookie of the site at url.
func (b *Tab) SetCookie(url, name, value string) {
	b.t.Helper()
	yes := true
	_, err := chromedp.Call(b.ctx, network.SetCookie, network.SetCookieParams{Name: name, Value: value, URL: url, Path: "/", Secure: &yes, HTTPOnly: &yes, SameSite: "Lax"})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Evaluate gives what a JavaScript expression is.
func Evaluate[T any](b *Tab, expression string) (T, error) {
	return chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
}
