package health

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

type images struct {
	app.ImageStore
	list []app.Image
}

func (i images) ListImages(context.Context) ([]app.Image, error) { return i.list, nil }

func TestWorstComesFirstAndAFailedCheckIsAWarning(t *testing.T) {
	var s Service
	s.Add("a", func(context.Context) ([]Warning, error) { return []Warning{{Code: "low", Level: "info"}}, nil })
	s.Add("b", func(context.Context) ([]Warning, error) { return nil, errors.New("no") })
	s.Add("c", func(context.Context) ([]Warning, error) { return []Warning{{Code: "high", Level: "error"}}, nil })
	var codes []string
	for _, w := range s.Warnings(t.Context()) {
		codes = append(codes, w.Code)
	}
	if len(codes) != 3 || codes[0] != "high" || codes[1] != "check-failed" || codes[2] != "low" {
		t.Errorf("order %v", codes)
	}
}

func TestImagesSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		list []app.Image
		want []string
	}{
		{nil, []string{"no-image"}},
		{[]app.Image{{Name: "a", State: "ready"}}, nil},
		{[]app.Image{{Name: "a", State: "failed", Reason: "cut"}}, []string{"image-failed", "no-image"}},
	} {
		got, err := Images(images{list: c.list})(t.Context())
		if err != nil || len(got) != len(c.want) {
			t.Fatalf("%+v: %+v, %v", c.list, got, err)
		}
		for i := range got {
			if got[i].Code != c.want[i] || got[i].WayOut == "" {
				t.Errorf("%+v: %+v", c.list, got)
			}
		}
	}
}

// A failed image is said to have failed at what it failed at, and what is to be typed.
func TestFailedImageNamesTheCommands(t *testing.T) {
	for _, c := range []struct {
		image app.Image
		want  string
	}{
		{app.Image{Name: "web", State: "failed", Reason: "the archive is cut"}, "the import of image web failed: the archive is cut"},
		{app.Image{Name: "web", State: "failed", Reason: "its index is missing", Index: "ab"}, "image web was ready and cannot be used any more: its index is missing"},
	} {
		got, err := Images(images{list: []app.Image{c.image}})(t.Context())
		if err != nil || got[0].Message != c.want || !strings.Contains(got[0].WayOut, "bcd image import web") || !strings.Contains(got[0].WayOut, "bcd image delete web") {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestSpaceRunsLow(t *testing.T) {
	const reserve = 512 << 20
	for left, want := range map[int64]string{0: "disk-full", reserve - 1: "disk-full", reserve: "disk-low", 2*reserve - 1: "disk-low", 2 * reserve: ""} {
		w, err := Space(func() (int64, error) { return left, nil }, reserve)(t.Context())
		code := ""
		if len(w) > 0 {
			code = w[0].Code
		}
		if err != nil || code != want {
			t.Errorf("%d bytes: %v, %v", left, w, err)
		}
	}
}

type subnets struct {
	app.NetworkStore
	list   []app.Subnet
	leases []app.Lease
}

func (s subnets) ListSubnets(context.Context) ([]app.Subnet, error) { return s.list, nil }
func (s subnets) ListLeases(context.Context) ([]app.Lease, error)   { return s.leases, nil }

// A pool is exhausted when a machine that is new there would get nothing, whoever holds its addresses.
func TestPoolsRunDry(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	addr := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	lan := app.Subnet{CIDR: netip.MustParsePrefix("192.0.2.0/24"), Mode: app.SubnetFull, PoolStart: addr(10), PoolEnd: addr(11)}
	lease := func(n byte, state string, left time.Duration, kept bool) app.Lease {
		return app.Lease{Addr: addr(n), State: state, Expires: at.Add(left), Reserved: kept}
	}
	for name, c := range map[string]struct {
		change func(*app.Subnet)
		leases []app.Lease
		want   bool
	}{
		"nobody":            {nil, nil, false},
		"one":               {nil, []app.Lease{lease(10, "bound", time.Hour, false)}, false},
		"both":              {nil, []app.Lease{lease(10, "bound", time.Hour, false), lease(11, "offered", time.Minute, false)}, true},
		"one has run out":   {nil, []app.Lease{lease(10, "bound", time.Hour, false), lease(11, "bound", -time.Second, false)}, false},
		"kept for good":     {nil, []app.Lease{lease(10, "bound", -time.Hour, true), lease(11, "bound", -time.Hour, true)}, true},
		"released":          {nil, []app.Lease{lease(10, "released", time.Hour, false), lease(11, "bound", time.Hour, false)}, false},
		"declined":          {nil, []app.Lease{lease(10, "declined", time.Hour, false), lease(11, "bound", time.Hour, false)}, true},
		"outside of it":     {nil, []app.Lease{lease(9, "bound", time.Hour, false), lease(12, "bound", time.Hour, false)}, false},
		"gateway in it":     {func(s *app.Subnet) { s.Gateway = addr(10) }, []app.Lease{lease(11, "bound", time.Hour, false)}, true},
		"reservations":      {func(s *app.Subnet) { s.Reservations = []app.Reservation{{Addr: addr(10)}, {Addr: addr(11)}} }, nil, true},
		"not our addresses": {func(s *app.Subnet) { s.Mode = app.SubnetProxy }, []app.Lease{lease(10, "bound", time.Hour, false), lease(11, "bound", time.Hour, false)}, false},
		"off":               {func(s *app.Subnet) { s.Mode = app.SubnetOff }, []app.Lease{lease(10, "bound", time.Hour, false), lease(11, "bound", time.Hour, false)}, false},
	} {
		s := lan
		if c.change != nil {
			c.change(&s)
		}
		w, err := Pools(subnets{list: []app.Subnet{s}, leases: c.leases}, func() time.Time { return at })(t.Context())
		if err != nil || (len(w) == 1 && w[0].Code == "pool-exhausted" && w[0].WayOut != "") != c.want || len(w) > 1 {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
}
