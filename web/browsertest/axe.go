package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/chromedp/chromedp"
)

// ask runs axe-core over the page and keeps what it found: each rule with the elements that break it. Of text that has no
// measurable contrast it says nothing; what is folded away is opened for the look.
const ask = `(() => {
	window.barriers = undefined;
	const folded = [...document.querySelectorAll("details:not([open])")];
	folded.forEach(d => d.open = true);
	axe.run(document, {resultTypes: ["violations"]}).then(r => {
		window.barriers = r.violations.map(v => v.id + ": " + v.nodes.slice(0, 4).map(n => n.target.join(" ") + " (" + (n.any[0]?.message ?? n.failureSummary) + ")").join("; ")).join("\n");
		folded.forEach(d => d.open = false);
	}, e => { window.barriers = "axe-core failed: " + e; });
	return true;
})()`

// Axe is the source of axe-core, which make setup-test fetches, or skips the test with the reason.
func (b *Tab) Axe() string {
	b.t.Helper()
	_, here, _, _ := runtime.Caller(0)
	source, err := os.ReadFile(filepath.Join(filepath.Dir(here), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		b.t.Skipf("left out: axe-core is not installed (%v); make setup-test fetches it", err)
	}
	return string(source)
}

// Passable fails the test for everything on the page that keeps people out who use a keyboard, a screen reader, or eyes that
// want contrast, as far as axe-core can tell. axe is its source.
func (b *Tab) Passable(what, axe string) {
	b.t.Helper()
	there, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("window.axe !== undefined"))
	if err == nil && !there {
		_, err = chromedp.Run(b.ctx, chromedp.Evaluate[bool]("(() => {"+axe+"\n;return true})()"))
	}
	if err != nil {
		b.t.Fatalf("%s: axe-core cannot be loaded: %v", what, err)
	}
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](ask)); err != nil {
		b.t.Fatalf("%s: axe-core cannot be run: %v", what, err)
	}
	b.Until("window.barriers !== undefined")
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("window.barriers"))
	if err != nil || found != "" {
		b.t.Error(fmt.Sprintf("%s has barriers:\n%s", what, found), err)
	}
}
