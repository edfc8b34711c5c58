package redfish

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// configure changes the rig's configuration.
func (r *rig) configure(kv ...string) {
	cfg := map[string]string{}
	for i := 0; i+1 < len(kv); i += 2 {
		cfg[kv[i]] = kv[i+1]
	}
	r.Config, _ = json.Marshal(cfg)
}

func TestPinDecides(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	r := newRig(t, bmc)
	pin := spki(bmc.Certificate())
	other := strings.Repeat("0f", 32)

	r.configure("address", bmc.Address(), "tlsSpkiSha256", other)
	for _, op := range [][2]string{{"power", "getPower"}, {"management", "probe"}} {
		_, err := r.call(op[0], op[1], "[]")
		wants(t, err, driver.CodePinMismatch)
		if !strings.Contains(err.Message, other) || !strings.Contains(err.Message, pin) {
			t.Errorf("the error does not show both keys: %s", err.Message)
		}
	}
	r.configure("address", bmc.Address())
	_, err := r.call("power", "getPower", "[]")
	wants(t, err, driver.CodeUntrusted)
	if !strings.Contains(err.Message, pin) {
		t.Errorf("the error does not show the key: %s", err.Message)
	}
	if n := len(bmc.Requests("")); n != 0 {
		t.Errorf("%d requests reached a BMC whose key is not accepted", n)
	}

	var card driver.Card
	if err := json.Unmarshal(r.must(t, "management", "probe", "[]"), &card); err != nil {
		t.Fatal(err)
	}
	if card.SPKI != pin || card.CertTrusted || card.CertExpires == "" {
		t.Errorf("the probe shows %+v", card)
	}
	r.configure("address", bmc.Address(), "tlsSpkiSha256", strings.ToUpper(card.SPKI))
	r.must(t, "power", "getPower", "[]")
}

// The key that answered first is the only one a probe accepts to its end.
func TestProbeKeepsItsFirstKey(t *testing.T) {
	c := newClient(target{host: "192.0.2.1"}, "", true, limitsOf(0))
	first, second := serveTLS(t, nil, nil), otherKey(t)
	state := func(s *httptest.Server) error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		return handshake(t.Context(), conn, c)
	}
	if err := state(first); err != nil {
		t.Fatal(err)
	}
	if err := state(first); err != nil || c.pin != spki(first.Certificate()) {
		t.Errorf("the same key gave %v, the pin is %s", err, c.pin)
	}
	if err := state(second); err == nil || driver.AsError(err).Code != driver.CodePinMismatch {
		t.Errorf("another key gave %v", err)
	}
}

// otherKey is a TLS server whose key is not the one all httptest servers share.
func otherKey(t *testing.T) *httptest.Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return serveTLS(t, nil, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
}

// serveTLS starts a server that keeps refused handshakes to itself.
func serveTLS(t *testing.T, h http.HandlerFunc, config *tls.Config) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS, s.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func handshake(ctx context.Context, conn net.Conn, c *client) error {
	return tls.Client(conn, c.tlsConfig()).HandshakeContext(ctx)
}

func TestStaysOnTheBMC(t *testing.T) {
	stranger := serveTLS(t, func(_ http.ResponseWriter, q *http.Request) {
		t.Errorf("the stranger was asked %s with token %q", q.URL, q.Header.Get("X-Auth-Token"))
	}, nil)
	for name, prepare := range map[string]func(*bmctest.Redfish){
		"link": func(b *bmctest.Redfish) {
			b.Doc("/redfish/v1")["Systems"] = map[string]any{"@odata.id": stranger.URL + "/redfish/v1/Systems"}
		},
		"link without scheme": func(b *bmctest.Redfish) {
			b.Doc("/redfish/v1/Systems")["Members"] = []any{map[string]any{"@odata.id": "//" + stranger.Listener.Addr().String() + "/x"}}
		},
		"action": func(b *bmctest.Redfish) {
			b.Doc(bmctest.SystemPath)["Actions"] = map[string]any{"#ComputerSystem.Reset": map[string]any{"target": stranger.URL}}
		},
		"redirect": func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.URL.Path != bmctest.SystemPath {
					return false
				}
				http.Redirect(w, q, stranger.URL, http.StatusTemporaryRedirect)
				return true
			}
		},
		"circle": func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.URL.Path != bmctest.SystemPath {
					return false
				}
				http.Redirect(w, q, q.URL.Path, http.StatusMovedPermanently)
				return true
			}
		},
		"not a path": func(b *bmctest.Redfish) {
			b.Doc("/redfish/v1/Systems")["Members"] = []any{map[string]any{"@odata.id": "javascript:alert(1)"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			prepare(bmc)
			_, err := newRig(t, bmc).call("power", "setPower", `["off"]`)
			wants(t, err, driver.CodeBMCError)
		})
	}
}

func TestBounds(t *testing.T) {
	answer := func(f func(w http.ResponseWriter, q *http.Request)) func(*bmctest.Redfish) {
		return func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.URL.Path != bmctest.SystemPath {
					return false
				}
				f(w, q)
				return true
			}
		}
	}
	for name, c := range map[string]struct {
		prepare func(*bmctest.Redfish)
		code    string
	}{
		"endless body": {answer(func(w http.ResponseWriter, _ *http.Request) {
			chunk := []byte(strings.Repeat(" ", 1<<16))
			for range maxBody/len(chunk) + 8 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}), driver.CodeBMCError},
		"HTML":       {answer(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }), driver.CodeBMCError},
		"a list":     {answer(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") }), driver.CodeBMCError},
		"broken off": {answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), driver.CodeUnreachable},
		"404 for a system": {func(b *bmctest.Redfish) {
			b.Doc("/redfish/v1/Systems")["Members"] = []any{map[string]any{"@odata.id": "/redfish/v1/Systems/gone"}}
		}, codeNotFound},
		"endless pages": {func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.URL.Path != "/redfish/v1/Systems" {
					return false
				}
				fmt.Fprintf(w, `{"Members":[],"Members@odata.nextLink":"/redfish/v1/Systems?n=%d"}`, len(q.URL.RawQuery)+int(time.Now().UnixNano()%1e9))
				return true
			}
		}, driver.CodeBMCError},
		"no Redfish": {func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				http.NotFound(w, q)
				return true
			}
		}, driver.CodeUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			c.prepare(bmc)
			_, err := newRig(t, bmc).call("power", "getPower", "[]")
			wants(t, err, c.code)
		})
	}
}

func TestDeadBMC(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	r := newRig(t, bmctest.NewRedfish(t))
	for address, code := range map[string]string{
		bmctest.Deaf(t).String():                 driver.CodeUnreachable,
		strings.TrimPrefix(plain.URL, "http://"): driver.CodeUnreachable, // it speaks, but no TLS
		"bmc.invalid":                            driver.CodeUnreachable,
		"http://192.0.2.1":                       "invalid-address",
	} {
		r.configure("address", address, "tlsSpkiSha256", strings.Repeat("ab", 32))
		_, err := r.call("power", "getPower", "[]")
		if err == nil || err.Code != code {
			t.Errorf("%s gave %v, want %s", address, err, code)
		}
	}
}

// A BMC that hangs costs its own call's deadline and nothing else.
func TestDeadline(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	stop := make(chan struct{})
	hanging := serveTLS(t, func(http.ResponseWriter, *http.Request) { <-stop }, nil)
	t.Cleanup(func() { close(stop) })
	r := newRig(t, bmc)
	r.configure("address", strings.TrimPrefix(hanging.URL, "https://"), "tlsSpkiSha256", spki(hanging.Certificate()))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	c := &driver.Context{Context: ctx, Secrets: r.Secrets}
	_, err := r.Driver.Invoke(c, driver.Call{Kind: "power", Operation: "getPower", Config: r.Config})
	wants(t, driver.AsError(err), driver.CodeTimeout)
}

func TestFaultShapes(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"@Message.ExtendedInfo":[{"MessageId":"A.1","Message":"List."},{"Message":"Two."}]}}`: "List. Two.",
		`{"error":{"@Message.ExtendedInfo":{"MessageId":"A.1","Message":"Object."}}}`:                    "Object.",
		`{"error":{"@Message.ExtendedInfo":"Text."}}`:                                                    "Text.",
		`{"@Message.ExtendedInfo":[{"MessageId":"Base.1.0.Bare"}]}`:                                      "Base.1.0.Bare",
		`{"error":{"code":"Base.1.0.Gen","message":"Plain."}}`:                                           "Plain.",
		`<html>Forbidden</html>`: "Bad Request", `null`: "Bad Request", `{"error":7}`: "Bad Request",
		`{"error":{"@Message.ExtendedInfo":[7,null,{"Message":"Ansi \u001b[31m\nx"}]}}`: "Ansi  [31m x",
	} {
		if got := parseFault(&response{status: 400, body: []byte(body)}).text(); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.10":                        "https://192.0.2.10:443",
		"https://192.0.2.10:8443/":          "https://192.0.2.10:8443",
		"2001:db8::10":                      "https://[2001:db8::10]:443",
		"[2001:db8::10]":                    "https://[2001:db8::10]:443",
		"https://[2001:DB8::10]:8443":       "https://[2001:db8::10]:8443",
		"BMC-7.example":                     "https://bmc-7.example:443",
		"bmc/redfish/v1/Systems/Node0":      "https://bmc:443 /redfish/v1/Systems/Node0",
		"bmc/redfish/v1/Systems/../Chassis": "", "bmc/x": "", "bmc?x": "", "": "", "http://bmc": "", "ftp://bmc": "",
		"user:pw@bmc": "", "bmc:0": "", "bmc:99999": "", "bmc:x": "", "a b": "", "[::1": "", "-bmc": "", "bmc\n": "",
		"bmc/redfish/v1/Systems/a%2fb": "", strings.Repeat("a", 600): "",
	} {
		got, err := parseAddress(in)
		text := got.origin
		if got.system != "" {
			text += " " + got.system
		}
		if text != want || (want == "") != (err != nil) {
			t.Errorf("%q: %q, %v, want %q", in, text, err, want)
		}
		if err != nil && driver.AsError(err).Code != "invalid-address" {
			t.Errorf("%q: code %s", in, driver.AsError(err).Code)
		}
	}
}

func TestIdleSessionIsDeleted(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	deleted := make(chan struct{}, 1)
	bmc.Intercept = func(_ http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		if q.Method == http.MethodDelete {
			deleted <- struct{}{}
		}
		return false
	}
	r := newRig(t, bmc)
	r.redf.idleTimeout = time.Millisecond
	r.must(t, "power", "getPower", "[]")
	<-deleted
	r.redf.idleTimeout = time.Hour
	r.must(t, "power", "getPower", "[]")
	r.redf.Forget(bmc.URL)
	<-deleted
	if made, _, _ := bmc.Sessions(); made != 2 {
		t.Errorf("%d sessions", made)
	}
}

func TestClosedDriverRefuses(t *testing.T) {
	r := newRig(t, bmctest.NewRedfish(t))
	if err := r.redf.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := r.call("power", "getPower", "[]")
	wants(t, err, driver.CodeUnavailable)
}

func TestRotation(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	r := newRig(t, bmc)
	r.must(t, "power", "getPower", "[]")
	r.must(t, "management", "rotateCredential", `["a new one",{}]`)
	if _, err := r.call("power", "getPower", "[]"); err == nil || err.Code != driver.CodeAuthFailed {
		t.Errorf("the old password gave %v", err)
	}
	r.Secrets["password"] = "a new one"
	r.must(t, "power", "getPower", "[]")
	r.Secrets["newPassword"] = "another"
	r.must(t, "management", "rotateCredential", `[null,{"username":"admin"}]`)
	r.Secrets["password"] = "another"
	r.must(t, "power", "getPower", "[]")
	_, err := r.call("management", "rotateCredential", `["x",{"username":"nobody"}]`)
	wants(t, err, driver.CodeUnsupported)
}

// A BMC that accepts a password and keeps the old one is found out.
func TestRotationIsProven(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.Intercept = func(w http.ResponseWriter, _ *http.Request, body map[string]any) bool {
		if body["Password"] == "new" && body["UserName"] == nil {
			w.WriteHeader(http.StatusNoContent)
			return true
		}
		return false
	}
	_, err := newRig(t, bmc).call("management", "rotateCredential", `["new"]`)
	wants(t, err, driver.CodeNotApplied)
}

func TestOptionsAreRefused(t *testing.T) {
	r := newRig(t, bmctest.NewRedfish(t))
	r.Config = json.RawMessage(`{"address":"192.0.2.1","options":{"cipherSuite":3}}`)
	_, err := r.call("power", "getPower", "[]")
	wants(t, err, driver.CodeInvalidConfig)
}
