package store

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
)

var comparable = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}

func subnet(id, cidr string) *app.Subnet {
	return &app.Subnet{ID: id, CIDR: netip.MustParsePrefix(cidr), Mode: "off", LeaseTime: app.Duration(time.Hour),
		Gateway: netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
}

func put(t *testing.T, db *DB, all ...*app.Subnet) {
	t.Helper()
	for _, s := range all {
		if err := db.PutSubnet(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubnets(t *testing.T) {
	db := open(t, "")
	b, a := subnet("s-b", "198.51.100.0/24"), subnet("s-a", "192.0.2.17/25")
	put(t, db, b, a)
	if a.CIDR.String() != "192.0.2.0/25" || a.Created.IsZero() {
		t.Errorf("stored as %+v", a)
	}
	all, err := db.ListSubnets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]app.Subnet{*a, *b}, all, comparable); d != "" {
		t.Error(d)
	}
	wantCode(t, db.PutSubnet(t.Context(), subnet("s-c", "192.0.0.0/16")), app.Conflict, "subnet-overlap")
	wantCode(t, db.PutSubnet(t.Context(), &app.Subnet{ID: "s-d"}), app.InvalidInput, "invalid-field")
	a.Mode = "full"
	if err := db.PutLeases(t.Context(), []app.Lease{{MAC: mac(1), Addr: netip.MustParseAddr("192.0.2.9"), SubnetID: "s-a"}}); err != nil {
		t.Fatal(err)
	}
	put(t, db, a) // replaced, with its leases left alone
	if leases, _ := db.ListLeases(t.Context()); len(leases) != 1 {
		t.Errorf("%d leases", len(leases))
	}
	got, err := db.ChangeSubnet(t.Context(), "s-a", func(s *app.Subnet) error {
		s.Reservations = append(s.Reservations, app.Reservation{MAC: mac(1), Addr: netip.MustParseAddr("192.0.2.9")})
		s.Options, s.Routes = []app.DHCPOption{{Code: 26, Type: "uint16", Value: "9000"}}, []app.StaticRoute{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: s.Gateway}}
		return nil
	})
	if all, lerr := db.ListSubnets(t.Context()); err != nil || lerr != nil || cmp.Diff(*got, all[0], comparable) != "" || len(all[0].Reservations) != 1 || all[0].Mode != "full" {
		t.Errorf("changed to %+v, %v; stored %+v", got, err, all)
	}
	refuse := app.Invalid("mac", "no")
	if _, err := db.ChangeSubnet(t.Context(), "s-a", func(s *app.Subnet) error { s.Mode = "off"; return refuse }); err != refuse {
		t.Errorf("a refused change gave %v", err)
	}
	if all, _ := db.ListSubnets(t.Context()); all[0].Mode != "full" {
		t.Error("a refused change was stored")
	}
	_, err = db.ChangeSubnet(t.Context(), "s-9", func(*app.Subnet) error { return nil })
	wantCode(t, err, app.NotFound, "subnet-not-found")
	if err := db.DeleteSubnet(t.Context(), "s-a"); err != nil {
		t.Fatal(err)
	}
	if leases, _ := db.ListLeases(t.Context()); len(leases) != 0 {
		t.Errorf("leases of a subnet that is gone: %v", leases)
	}
	wantCode(t, db.DeleteSubnet(t.Context(), "s-a"), app.NotFound, "subnet-not-found")
}

func TestLeases(t *testing.T) {
	db := open(t, "")
	put(t, db, subnet("s-a", "192.0.2.0/24"))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lease := func(m int, addr string) app.Lease {
		return app.Lease{MAC: mac(m), Addr: netip.MustParseAddr(addr), SubnetID: "s-a", State: "bound", Hostname: "<b>\n", Expires: at, Seen: at}
	}
	if err := db.PutLeases(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.PutLeases(t.Context(), []app.Lease{lease(2, "192.0.2.20"), lease(1, "192.0.2.3"), lease(3, "::ffff:192.0.2.4")}); err != nil {
		t.Fatal(err)
	}
	if err := db.PutLeases(t.Context(), []app.Lease{lease(7, "192.0.2.20")}); err != nil { // another machine gets the address
		t.Fatal(err)
	}
	want := []app.Lease{lease(1, "192.0.2.3"), lease(3, "192.0.2.4"), lease(7, "192.0.2.20")}
	all, err := db.ListLeases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, all, comparable); d != "" {
		t.Error(d)
	}
	bad := []app.Lease{lease(4, "192.0.2.30"), {MAC: "x", Addr: netip.MustParseAddr("192.0.2.31"), SubnetID: "s-a"}}
	wantCode(t, db.PutLeases(t.Context(), bad), app.InvalidInput, "invalid-field")
	bad[1] = app.Lease{MAC: mac(5), Addr: netip.MustParseAddr("192.0.2.31"), SubnetID: "s-9"}
	wantCode(t, db.PutLeases(t.Context(), bad), app.NotFound, "subnet-not-found")
	if all, _ := db.ListLeases(t.Context()); len(all) != 3 {
		t.Errorf("a half of a refused batch was kept: %d leases", len(all))
	}
	if err := db.DeleteLease(t.Context(), mac(2), netip.MustParseAddr("192.0.2.20")); err != nil { // no longer the owner
		t.Fatal(err)
	}
	if err := db.DeleteLease(t.Context(), mac(1), netip.MustParseAddr("192.0.2.3")); err != nil {
		t.Fatal(err)
	}
	if all, _ := db.ListLeases(t.Context()); len(all) != 2 {
		t.Errorf("%d leases are left", len(all))
	}
}

// Many callers at once share transactions: far fewer commits than calls.
func TestLeaseWritesAreMerged(t *testing.T) {
	db := open(t, "")
	put(t, db, subnet("s-a", "192.0.2.0/24"))
	tx, err := db.writer.Begin() // holds the writer, so that callers gather
	if err != nil {
		t.Fatal(err)
	}
	const callers = 200
	var wg sync.WaitGroup
	call := func(i int) {
		wg.Go(func() {
			err := db.PutLeases(t.Context(), []app.Lease{{MAC: mac(i), Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), SubnetID: "s-a"}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	before := db.group.batches.Load()
	call(0)
	for db.group.batches.Load() == before { // until the first leads a batch of its own, which waits for the writer
		runtime.Gosched()
	}
	for i := range callers - 1 {
		call(i + 1)
	}
	for waiting := 0; waiting < callers-1; runtime.Gosched() {
		db.group.mu.Lock()
		waiting = len(db.group.waiting)
		db.group.mu.Unlock()
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if all, err := db.ListLeases(t.Context()); err != nil || len(all) != callers {
		t.Errorf("%d leases, %v", len(all), err)
	}
	if n := db.group.batches.Load(); n > 5 {
		t.Errorf("%d transactions for %d callers", n, callers)
	}
}

func BenchmarkPutLeases(b *testing.B) {
	db := open(b, "")
	if err := db.PutSubnet(b.Context(), subnet("s-a", "192.0.2.0/24")); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			l := app.Lease{MAC: mac(i % 250), Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 250)}), SubnetID: "s-a"}
			if err := db.PutLeases(b.Context(), []app.Lease{l}); err != nil {
				b.Error(err)
			}
		}
	})
}

func TestDiscoveries(t *testing.T) {
	db := open(t, "")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, d := range []app.Discovery{
		{MAC: "00-00-5E-00-53-01", Vendor: "PXEClient", Arch: "bios", Last: at},
		{MAC: "00:00:5e:00:53:01", Vendor: "PXEClient:iPXE", UUID: "01234567-89ab-cdef-0123-456789abcdef", Last: at.Add(time.Second)},
	} {
		if err := db.PutDiscovery(t.Context(), &d); err != nil {
			t.Fatal(err)
		}
		if d.Count != i+1 || !d.First.Equal(at) || d.Arch != "bios" {
			t.Errorf("after %d: %+v", i+1, d)
		}
	}
	all, err := db.ListDiscoveries(t.Context())
	if err != nil || len(all) != 1 || all[0].Vendor != "PXEClient:iPXE" || !all[0].Last.Equal(at.Add(time.Second)) {
		t.Errorf("%+v, %v", all, err)
	}
	wantCode(t, db.PutDiscovery(t.Context(), &app.Discovery{MAC: "ff:ff:ff:ff:ff:ff"}), app.InvalidInput, "invalid-field")
	if err := db.DeleteDiscovery(t.Context(), "00:00:5e:00:53:01"); err != nil {
		t.Fatal(err)
	}
	if all, _ := db.ListDiscoveries(t.Context()); len(all) != 0 {
		t.Errorf("%v is left", all)
	}
}

// A flood of unknown machines pushes out the ones not seen for longest, never the one just seen.
func TestDiscoveriesAreBounded(t *testing.T) {
	db := open(t, "")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var wg sync.WaitGroup
	for i := range MaxDiscoveries + 50 {
		wg.Go(func() {
			if err := db.PutDiscovery(t.Context(), &app.Discovery{MAC: mac(1000 + i), Last: at.Add(time.Duration(i) * time.Second)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := db.PutDiscovery(t.Context(), &app.Discovery{MAC: mac(1), Last: at.Add(-time.Hour)}); err != nil { // the clock was set back
		t.Fatal(err)
	}
	all, err := db.ListDiscoveries(t.Context())
	if err != nil || len(all) != MaxDiscoveries || all[len(all)-1].MAC != mac(1) || all[0].MAC != mac(1000+MaxDiscoveries+49) {
		t.Errorf("%d rows, last %v, %v", len(all), all[len(all)-1], err)
	}
}
