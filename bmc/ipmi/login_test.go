package ipmi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	gobmc "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.5": "192.0.2.5:623", "192.0.2.5:6230": "192.0.2.5:6230", "ipmi://192.0.2.5": "192.0.2.5:623", "https://bmc.example.com:623": "bmc.example.com:623",
		"bmc-1.example.com": "bmc-1.example.com:623", "bmc": "bmc:623", "2001:db8::5": "[2001:db8::5]:623", "[2001:db8::5]": "[2001:db8::5]:623",
		"[2001:db8::5]:7": "[2001:db8::5]:7", "lanplus://[2001:db8::5]:65535": "[2001:db8::5]:65535", "fe80::1%eth0": "[fe80::1%eth0]:623",
		"\t192.0.2.5\n": "192.0.2.5:623", "bmc_1": "bmc_1:623", "bmc.example.com.": "bmc.example.com.:623", "192.0.2.5:0623": "192.0.2.5:623",
	} {
		got, err := parseAddress(in)
		if err != nil || got.String() != want {
			t.Errorf("%q is %q (%v), want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", " ", "192.0.2.5:0", "192.0.2.5:65536", "192.0.2.5:x", "192.0.2.5:", "192.0.2.5/redfish", "admin@192.0.2.5", "-H", "--help", "a b",
		"192.0.2", "192.0.2.500", "0x7f.1", "1", "a..b", ".a", "[192.0.2.5]", "[2001:db8::5", "2001:db8::5]:1", "a;id", "a\nb", "bmc\x00", "::1%a b",
		strings.Repeat("a.", 200) + "a", "http://", "ipmi://ipmi://x", "192.0.2.5:6:7", "[::1]]:3", "[bmc]:623", "a-", "fe80::1%-x",
	} {
		if got, err := parseAddress(in); err == nil {
			t.Errorf("%q is taken for %q", in, got)
		} else if e := driver.AsError(err); e.Code != CodeInvalidAddress {
			t.Errorf("%q: %s", in, e.Code)
		}
	}
}

func TestConfigurations(t *testing.T) {
	needTool(t)
	for config, code := range map[string]string{
		`{"address":"192.0.2.5","tlsSpkiSha256":"00"}`:                               CodePinUnsupported,
		`{"address":"192.0.2.5","tlsSpkiSha256":"` + strings.Repeat("ab", 32) + `"}`: CodePinUnsupported,
		`{"address":"192.0.2.5","options":{"cipherSuite":0}}`:                        driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"cipherSuite":1}}`:                        driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"cipherSuite":2}}`:                        driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"cipherSuite":"17"}}`:                     driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"cipherSuite":17.5}}`:                     driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"ciphersuite":17}}`:                       driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"privilege":"root"}}`:                     driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"kg":"hunter2"}}`:                         driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":{"kg":7}}`:                                 driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","options":[]}`:                                       driver.CodeInvalidConfig,
		`{"address":"192.0.2.5","username":"admin"}`:                                 driver.CodeInvalidConfig,
		`{"options":{"cipherSuite":17}}`:                                             driver.CodeInvalidConfig,
		`{"address":"192.0.2.5;id"}`:                                                 CodeInvalidAddress,
		`{"address":"192.0.2.5","options":{"kg":"secret://root/none"}}`:              driver.CodeNoCredentials,
	} {
		r := newRig(t, Config{}, "192.0.2.7", "")
		r.Config = json.RawMessage(config)
		for _, op := range []string{"power.getPower", "management.setBootDevice", "inspect.inspect"} {
			kind, name, _ := strings.Cut(op, ".")
			args := `[]`
			if name == "setBootDevice" {
				args = `["pxe"]`
			}
			if _, e := r.call(t.Context(), kind, name, args); e == nil || e.Code != code {
				t.Errorf("%s: %s: %v, want %s", op, config, e, code)
			}
		}
		c := driver.NewContext(t.Context())
		c.Secrets = r.Secrets
		if err := r.Driver.ValidateLive(c, r.Config); driver.AsError(err).Code != code {
			t.Errorf("validation of %s: %v, want %s", config, err, code)
		}
	}
}

func TestCredentials(t *testing.T) {
	for _, bad := range []string{"", "a b", "a\tb", "\n", "pass\u00a0word", "x\x00y", "x\x7fy", strings.Repeat("x", 21), strings.Repeat("ä", 11)} {
		if checkPassword(bad) == nil {
			t.Errorf("the password %q passes", bad)
		}
	}
	for _, good := range []string{"x", "-", strings.Repeat("x", 20), strings.Repeat("ä", 10), `'"\$;`} {
		if err := checkPassword(good); err != nil {
			t.Errorf("the password %q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a b", "a;b", "ä", strings.Repeat("x", 17), strings.Repeat("x", 65), "root\n"} {
		if checkUser(bad) == nil {
			t.Errorf("the user %q passes", bad)
		}
	}
	for _, good := range []string{"ADMIN", "a.b_c@d-e", "-", strings.Repeat("x", 16)} {
		if err := checkUser(good); err != nil {
			t.Errorf("the user %q: %v", good, err)
		}
	}
	for text, want := range map[string]string{"key": "key", "0x6b6579": "key", "0X6B6579000000": "key", "ff": "ff", strings.Repeat("k", 20): strings.Repeat("k", 20)} {
		if got, err := parseKey(text); err != nil || string(got) != want {
			t.Errorf("the key %q is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "0x", "0x0", "0xzz", "0x00", "0x610062", "0x610a", "a\nb", strings.Repeat("k", 21), "0x" + strings.Repeat("61", 21)} {
		if got, err := parseKey(bad); err == nil {
			t.Errorf("the key %q is %q", bad, got)
		}
	}
}

// What looks alike without asking is told apart, against a real ipmitool and BMC.
func TestLoginFailuresAreToldApart(t *testing.T) {
	needTool(t)
	for name, test := range map[string]struct {
		bmc     bmctest.IPMIConfig
		options string
		secrets driver.SecretMap
		code    string
		says    string
	}{
		"wrong password":    {secrets: driver.SecretMap{"password": "wrong"}, code: driver.CodeAuthFailed, says: "password"},
		"unknown user":      {secrets: driver.SecretMap{"username": "nobody"}, code: driver.CodeAuthFailed, says: "password of nobody"},
		"no password":       {secrets: driver.SecretMap{"password": ""}, code: driver.CodeNoCredentials},
		"key missing":       {bmc: bmctest.IPMIConfig{Key: []byte("bmc-key")}, code: driver.CodeAuthFailed, says: "option kg"},
		"key wrong":         {bmc: bmctest.IPMIConfig{Key: []byte("bmc-key")}, options: `{"kg":"secret://root/kg"}`, secrets: driver.SecretMap{"secret://root/kg": "other"}, code: driver.CodeAuthFailed, says: "another BMC key"},
		"key right":         {bmc: bmctest.IPMIConfig{Key: []byte("bmc-key")}, options: `{"kg":"secret://root/kg"}`, secrets: driver.SecretMap{"secret://root/kg": "bmc-key"}},
		"key right, as hex": {bmc: bmctest.IPMIConfig{Key: []byte{1, 0xfe, 0x80}}, options: `{"kg":"secret://root/kg"}`, secrets: driver.SecretMap{"secret://root/kg": "0x01fe80"}},
		"operator":          {bmc: bmctest.IPMIConfig{Privilege: gobmc.PrivilegeLevelOperator}, code: CodePrivilege, says: "privilege to operator"},
		"operator, allowed": {bmc: bmctest.IPMIConfig{Privilege: gobmc.PrivilegeLevelOperator}, options: `{"privilege":"operator"}`},
		"old BMC":           {bmc: bmctest.IPMIConfig{Suites: []types.CipherSuiteID{3}}, code: CodeCipherSuite, says: "cipherSuite to 3"},
		"old BMC, allowed":  {bmc: bmctest.IPMIConfig{Suites: []types.CipherSuiteID{3}}, options: `{"cipherSuite":3}`},
		"only suite 17":     {bmc: bmctest.IPMIConfig{Suites: []types.CipherSuiteID{17}}, options: `{"cipherSuite":3}`, code: CodeCipherSuite, says: "remove the option"},
		"suite 17":          {bmc: bmctest.IPMIConfig{Suites: []types.CipherSuiteID{17}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := bmctest.NewIPMI(t, test.bmc)
			cfg := unhurried
			if test.code != "" {
				cfg = Config{} // some BMCs refuse by saying nothing
			}
			r := newRig(t, cfg, b.Address(), test.options)
			for k, v := range test.secrets {
				r.Secrets[k] = v
			}
			_, e := r.call(t.Context(), "power", "setPower", `["off"]`)
			if test.code == "" {
				if e != nil || b.On() {
					t.Fatalf("failed: %v", e)
				}
				return
			}
			if e == nil || e.Code != test.code || !strings.Contains(e.Message, test.says) {
				t.Fatalf("got %+v, want %s that says %q", e, test.code, test.says)
			}
			if !b.On() {
				t.Error("the machine was turned off all the same")
			}
			for _, secret := range r.Secrets {
				if len(secret) > 5 && secret != r.Secrets["username"] && strings.Contains(e.Message, secret) {
					t.Errorf("the message holds a secret: %s", e.Message)
				}
			}
		})
	}
}

func TestSilenceIsWorded(t *testing.T) {
	for _, https := range []bool{false, true} {
		o := &operations{Driver: New(Config{})}
		o.exec = func(_ context.Context, _ *login, c command) (answer, error) {
			a := answer{stderr: "Error: " + noSession + "\n", exit: 1}
			if c.verbose {
				a.stderr = "Get Auth Capabilities error\n" + silent + " request\n" + a.stderr
			}
			return a, nil
		}
		o.https = func(_ context.Context, host string) bool { return https && host == "192.0.2.7" }
		_, err := o.ask(driver.NewContext(t.Context()), &login{target: target{"192.0.2.7", "623"}}, words("chassis", "power", "on"))
		e := driver.AsError(err)
		if e == nil || e.Code != driver.CodeUnreachable || !e.Retryable || strings.Contains(e.Message, "answers HTTPS") != https {
			t.Errorf("HTTPS %v: %+v", https, e)
		}
	}
}

// The only slow test: ipmitool gives a silent host up after some 10 s, and once more when asked why.
func TestSilence(t *testing.T) {
	needTool(t)
	t.Parallel()
	r := newRig(t, Config{}, "127.0.0.1:9", "")
	e := r.refused(t, "power", "getPower", `[]`, driver.CodeUnreachable)
	if !e.Retryable || !strings.Contains(e.Message, "IPMI over LAN") {
		t.Errorf("got %+v", e)
	}
	r.Config, _ = json.Marshal(map[string]string{"address": "bmc.invalid"})
	if e := r.refused(t, "power", "getPower", `[]`, driver.CodeUnreachable); !strings.Contains(e.Message, "does not resolve") {
		t.Errorf("got %+v", e)
	}
}
