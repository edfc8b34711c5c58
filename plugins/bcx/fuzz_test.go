package bcx

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// FuzzHandshake: what is accepted comes back as it was, and what is refused is refused in one clean line.
func FuzzHandshake(f *testing.F) {
	id, err := NewIdentity()
	if err != nil {
		f.Fatal(err)
	}
	good := Handshake{Network: "unix", Address: "/run/x/plugin.sock", Certificate: id.DER()}.String()
	for _, s := range []string{good, good + "=", good + "\n" + good, strings.Replace(good, "unix|/run/x/plugin.sock", "tcp|127.0.0.1:1", 1),
		strings.Replace(good, "unix|/run/x/plugin.sock", "tcp|192.0.2.1:1", 1), "bcx|2|unix|/x|grpc|AAAA", "bcx|1|unix|../x|grpc|AAAA",
		"bcx|1|unix|/x\x00|grpc|" + id.Encoded(), "bcx|1|unix|/a/../b|grpc|" + id.Encoded(), "", "|||||"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		h, err := ParseHandshake(line)
		if err != nil {
			oneLine(t, err.Error())
			return
		}
		again, err := ParseHandshake(h.String())
		if err != nil || again.Network != h.Network || again.Address != h.Address || !bytes.Equal(again.Certificate, h.Certificate) {
			t.Errorf("%q became %+v (%v)", line, again, err)
		}
		if h.Within("/run/x") == nil && !strings.HasPrefix(h.Address, "/run/x/") {
			t.Errorf("%q is not within /run/x", h.Address)
		}
	})
}

// FuzzReadHandshake cuts the stream at its first line, wherever the pieces end.
func FuzzReadHandshake(f *testing.F) {
	f.Add([]byte("bcx|1|unix|/x|grpc|AAAA\nmore"))
	f.Add(bytes.Repeat([]byte("a"), maxHandshake+2))
	f.Fuzz(func(t *testing.T, in []byte) {
		line, err := firstLine(bytes.NewReader(in))
		if err == nil && (len(line) > maxHandshake || strings.Contains(line, "\n") || !bytes.HasPrefix(in, []byte(line))) {
			t.Errorf("read %q", line)
		}
	})
}

// FuzzManifest: what is accepted can be defined, registered and called.
func FuzzManifest(f *testing.F) {
	for _, m := range []*driverv1.DescribeResponse{
		{ProtocolVersion: 1, Drivers: []*driverv1.DriverManifest{{Id: "acme", Version: "1.0.0", RunsOn: "site", Kinds: []string{"power", "console", "acme-x"},
			ConfigSchemaJson: `{"type":"object","properties":{"password":{"writeOnly":true}}}`,
			Capabilities:     []string{"virtual-media", "bcx.stream:console.open"}, RetrySafeOperations: []string{"power.getPower", "power.x", "acme-x.y"}}}},
		{ProtocolVersion: 1, Drivers: []*driverv1.DriverManifest{{Id: "a\x1b", Version: "1", ConfigSchemaJson: `{"$ref":"#"}`}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var m driverv1.DescribeResponse
		if len(in) > 64<<10 || proto.Unmarshal(in, &m) != nil {
			return
		}
		d, err := describe(&m)
		if err != nil {
			oneLine(t, err.Error())
			return
		}
		for _, manifest := range d.Drivers {
			def, err := driver.Define(Remote(manifest, func(*driver.Context) (*Conn, error) {
				return nil, driver.Errorf(driver.CodeUnavailable, "down")
			}))
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range def.Kinds() {
				_, err := def.Invoke(driver.NewContext(t.Context()), driver.Call{Kind: kind, Operation: "any"})
				if err == nil {
					t.Error("a driver without a connection answered")
				}
			}
		}
	})
}

// FuzzCertificate: what is accepted is a certificate.
func FuzzCertificate(f *testing.F) {
	id, err := NewIdentity()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(id.Encoded())
	f.Add("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, s string) {
		if der, err := decodeCertificate(s); err == nil && len(der) == 0 {
			t.Error("an empty certificate was taken")
		}
	})
}

// FuzzForwardLog: nothing of a plugin's stderr breaks out of its line of the log.
func FuzzForwardLog(f *testing.F) {
	for _, s := range []string{`{"level":"INFO","msg":"x","a":{"b":[1]}}`, "panic: x\n\ngoroutine 1", "{\"msg\":\"\\u001b[2J\\n\"}", "\xff\xfe\n", strings.Repeat("a", 20<<10)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		forwardLog(bytes.NewReader(in), slog.New(slog.NewJSONHandler(&out, nil)))
		lines := strings.Count(out.String(), "\n")
		if lines > bytes.Count(in, []byte("\n"))+2 {
			t.Errorf("%d lines came of %q", lines, in)
		}
		for _, l := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
			if l != "" {
				oneLine(t, l)
			}
		}
	})
}

// oneLine checks that text is fit for a log.
func oneLine(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("not UTF-8: %q", s)
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			t.Errorf("%U in %q", r, s)
			return
		}
	}
}
