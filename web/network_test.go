package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

func TestSubnetModesAndRivals(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	w := x.Do("POST", "/api/v1/subnets", admin, `{"cidr":"192.0.2.0/24","interface":"eno1","poolStart":"192.0.2.100","poolEnd":"192.0.2.199","gateway":"192.0.2.1",
		"routes":["198.51.100.0/24=192.0.2.254"],"options":["26=uint16:9000","224=text:rack 1"],"tftpSinglePort":true,"tftpBlockSize":1024}`)
	var made api.SubnetView
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != http.StatusCreated || made.Mode != app.SubnetOff || len(made.Routes) != 1 || len(made.Options) != 2 || !made.TFTPSinglePort || made.TFTPBlockSize != 1024 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if len(made.KeepYours) == 0 || len(made.Notes) != 0 {
		t.Errorf("%+v", made)
	}
	target := "/api/v1/subnets/" + made.ID
	mode := func(body string) (int, app.Error) {
		w := x.Do("POST", target+"/mode", admin, body)
		if w.Code >= 300 {
			return w.Code, refusal(t, w)
		}
		return w.Code, app.Error{}
	}
	stored := func() string {
		all, err := x.Store.ListSubnets(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v %v", all, err)
		}
		return all[0].Mode
	}
	rival := app.Rival{Interface: "eno1", Server: netip.MustParseAddr("192.0.2.3"), MAC: "00:00:5e:00:53:03", Offered: netip.MustParseAddr("192.0.2.77"), Seen: time.Unix(0, 0)}
	x.Wire.Find([]app.Rival{rival}, nil)
	code, e := mode(`{"mode":"full"}`)
	if code != http.StatusConflict || e.Reason != "rival-dhcp" || e.WayOut == "" || stored() != app.SubnetOff {
		t.Errorf("full beside a rival: %d %+v, stored %s", code, e, stored())
	}
	for _, want := range []string{"192.0.2.3", "00:00:5e:00:53:03", "192.0.2.77", "eno1"} {
		if !strings.Contains(e.Message, want) {
			t.Errorf("the rival's %s is not named: %s", want, e.Message)
		}
	}
	if code, e := mode(`{"mode":"proxy"}`); code != http.StatusOK || stored() != app.SubnetProxy {
		t.Errorf("proxy beside a rival: %d %+v", code, e)
	}
	if code, e := mode(`{"mode":"full","despiteRival":true}`); code != http.StatusOK || stored() != app.SubnetFull {
		t.Errorf("full all the same: %d %+v", code, e)
	}
	rival.Offered, rival.BootFile = netip.Addr{}, "theirs.efi"
	x.Wire.Find([]app.Rival{rival}, nil)
	for _, m := range []string{"full", "proxy", "http"} {
		if code, e := mode(fmt.Sprintf(`{"mode":%q}`, m)); code != http.StatusConflict || e.Reason != "rival-boot" || !strings.Contains(e.Message, "theirs.efi") {
			t.Errorf("%s beside another boot server: %d %+v", m, code, e)
		}
	}
	if code, _ := mode(`{"mode":"off"}`); code != http.StatusOK || stored() != app.SubnetOff {
		t.Errorf("off beside a rival: %d", code)
	}
	x.Wire.Find(nil, app.Errorf(app.Unavailable, "rivals-not-sought", "no interface"))
	if code, e := mode(`{"mode":"http"}`); code != http.StatusOK {
		t.Errorf("where nobody can be asked: %d %+v", code, e)
	}
	if w := x.Do("POST", target+"/rivals", admin, ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("looking where nobody can be asked: %d", w.Code)
	}
	if code, e := mode(`{"mode":"relay"}`); code != http.StatusUnprocessableEntity || e.Field != "mode" || !strings.Contains(e.WayOut, "proxy") {
		t.Errorf("no mode: %d %+v", code, e)
	}
	if w := x.Do("DELETE", target, admin, ""); w.Code != http.StatusConflict {
		t.Errorf("deleting a subnet that answers: %d", w.Code)
	}
	if n, _ := x.Wire.Told(); n != 5 { // made, and four modes
		t.Errorf("netboot was told of %d changes", n)
	}
}

func TestReservations(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	var made api.SubnetView
	if err := json.Unmarshal(x.Do("POST", "/api/v1/subnets", admin, `{"cidr":"192.0.2.0/24","gateway":"192.0.2.1"}`).Body.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	target := "/api/v1/subnets/" + made.ID + "/reservations"
	for _, c := range []struct {
		body   string
		status int
		field  string
	}{
		{`{"mac":"00-00-5E-00-53-01","address":"192.0.2.9","note":"printer"}`, 201, ""},
		{`{"mac":"00:00:5e:00:53:01","address":"192.0.2.10"}`, 409, "mac"},
		{`{"mac":"00:00:5e:00:53:02","address":"192.0.2.9"}`, 409, "address"},
		{`{"mac":"00:00:5e:00:53:02","address":"192.0.2.1"}`, 422, "address"},
		{`{"mac":"00:00:5e:00:53:02","address":"198.51.100.9"}`, 422, "address"},
		{`{"mac":"ff:ff:ff:ff:ff:ff","address":"192.0.2.10"}`, 422, "mac"},
		{`{"mac":"00:00:5e:00:53:02","address":"192.0.2.10","note":"a\nb"}`, 422, "note"},
	} {
		w := x.Do("POST", target, admin, c.body)
		if w.Code != c.status {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		} else if w.Code > 300 && refusal(t, w).Field != c.field {
			t.Errorf("%s: at %q", c.body, refusal(t, w).Field)
		}
	}
	// An edit of the subnet keeps them, unless they no longer fit.
	if w := x.Do("PUT", "/api/v1/subnets/"+made.ID, admin, `{"cidr":"192.0.2.0/25","poolStart":"192.0.2.20","poolEnd":"192.0.2.30"}`); w.Code != 200 || !strings.Contains(w.Body.String(), "printer") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := x.Do("PUT", "/api/v1/subnets/"+made.ID, admin, `{"cidr":"192.0.2.128/25"}`); w.Code != 422 {
		t.Errorf("an edit that strands a reservation: %d %s", w.Code, w.Body)
	}
	if w := x.Do("DELETE", target+"/00-00-5e-00-53-02", admin, ""); w.Code != 404 {
		t.Errorf("deleting none: %d", w.Code)
	}
	if w := x.Do("DELETE", target+"/00-00-5e-00-53-01", admin, ""); w.Code != 200 || strings.Contains(w.Body.String(), "printer") {
		t.Errorf("deleting: %d %s", w.Code, w.Body)
	}
	if w := x.Do("POST", target, x.As(app.RoleViewer), `{"mac":"00:00:5e:00:53:03","address":"192.0.2.11"}`); w.Code != 403 {
		t.Errorf("a viewer reserves: %d", w.Code)
	}
}

func TestFreedLeaseIsForgottenByNetboot(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	s := &app.Subnet{ID: "net-1", CIDR: netip.MustParsePrefix("192.0.2.0/24"), Mode: app.SubnetOff}
	if err := x.Store.PutSubnet(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("192.0.2.9")
	if err := x.Store.PutLeases(t.Context(), []app.Lease{{MAC: "00:00:5e:00:53:01", Addr: a, SubnetID: "net-1"}}); err != nil {
		t.Fatal(err)
	}
	if w := x.Do("DELETE", "/api/v1/leases/00-00-5e-00-53-01/192.0.2.9", admin, ""); w.Code >= 300 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if _, freed := x.Wire.Told(); freed != "00:00:5e:00:53:01=192.0.2.9" {
		t.Errorf("freed %q", freed)
	}
}
