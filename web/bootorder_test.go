package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

func TestBootOrderIsShown(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "wire")
	viewer := x.As(app.RoleViewer)
	w := x.Do("GET", "/api/v1/machines/m-1/boot-order", viewer, "")
	b := answer[api.BootOrderReport](t, w.Body.Bytes())
	if w.Code != http.StatusOK || len(b.Words) != 2 || b.Words[0] != `debian wire (disk S1 wire, \EFI\debian\shimx64.efi)` || b.Words[1] != "UEFI PXEv4 (PXE IPv4 00:00:5e:00:53:01)" ||
		b.Problem == nil || b.Problem.WayOut == "" || len(b.History) != 1 || b.Writer != app.BootByAgent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	never := x.Do("GET", "/api/v1/machines/m-3/boot-order", viewer, "")
	if e := refusal(t, never); never.Code != http.StatusNotFound || e.Reason != "no-boot-order" || e.WayOut == "" {
		t.Errorf("%d %s", never.Code, never.Body)
	}
	page := x.Do("GET", "/machines/m-1", viewer, "").Body.String()
	for _, want := range []string{"Boot order", "not as it should be", "debian wire (disk S1 wire", "bcd, from the ramdisk", "the installed system: debian was added", "as commissioning found it"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if page := x.Do("GET", "/machines/m-3", viewer, "").Body.String(); !strings.Contains(page, "It was never read. Commission the machine") {
		t.Error("the page does not say that the order was never read")
	}
}

func TestBootOrderIsChosen(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "wire")
	admin := x.As(app.RoleAdmin)
	for _, c := range []struct {
		order  app.BootPolicy
		status int
	}{{app.BootNetworkFirst, 200}, {app.BootAsFound, 200}, {"disk-first", 422}, {"", 200}} {
		w := x.Do("PATCH", "/api/v1/machines/m-3", admin, `{"bootOrder":"`+string(c.order)+`"}`)
		if c.status != 200 {
			if e := refusal(t, w); w.Code/100 != 4 || e.Field != "bootOrder" || e.WayOut == "" {
				t.Errorf("%q: %d %s", c.order, w.Code, w.Body)
			}
			continue
		}
		if m := answer[app.Machine](t, w.Body.Bytes()); w.Code != c.status || m.BootOrder != c.order {
			t.Errorf("%q: %d %s", c.order, w.Code, w.Body)
		}
	}
	if w := x.Do("PUT", "/api/v1/profiles/front", admin, `{"bootOrder":"network-first"}`); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if p, err := x.Store.Profile(t.Context(), "front"); err != nil || p.BootOrder != app.BootNetworkFirst {
		t.Errorf("%+v, %v", p, err)
	}
}
