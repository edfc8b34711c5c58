package session

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// maxBootData is the largest boot.json that is read, in bytes. Rescue keys are the only part that grows.
const maxBootData = 256 << 10

// maxURLs bounds each of the URL lists of the boot data.
const maxURLs = 16

// ReadBootData reads and checks the boot data document at path.
func ReadBootData(path string) (*agentv1.BootData, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, badBootData(fmt.Errorf("opening boot data: %w", err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBootData+1))
	if err != nil {
		return nil, badBootData(fmt.Errorf("reading boot data %q: %w", path, err))
	}
	return ParseBootData(b)
}

// ParseBootData decodes boot.json and checks every part the agent relies on: without a pin, a command key, a token and a
// usable URL there is nothing to trust and nobody to ask.
func ParseBootData(b []byte) (*agentv1.BootData, error) {
	if len(b) > maxBootData {
		return nil, badBootData(fmt.Errorf("the document is larger than %d bytes", maxBootData))
	}
	var d agentv1.BootData
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, badBootData(fmt.Errorf("decoding boot data: %w", err))
	}
	var errs []error
	if _, err := parsePin(d.AgentPin); err != nil {
		errs = append(errs, err)
	}
	if _, err := ParseCommandKey(d.CommandKey); err != nil {
		errs = append(errs, err)
	}
	if d.Token == "" || len(d.Token) > 1024 {
		errs = append(errs, errors.New("token: missing or longer than 1024 bytes"))
	}
	errs = append(errs, checkURLs("siteUrls", d.SiteURLs, "https", true), checkURLs("bootUrls", d.BootURLs, "http", false))
	if d.BootMAC != "" {
		mac, err := app.ParseMAC(d.BootMAC)
		if err != nil {
			errs = append(errs, fmt.Errorf("bootMac: %w", err))
		}
		d.BootMAC = string(mac)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, badBootData(err)
	}
	return &d, nil
}

func badBootData(err error) error {
	return app.Errorf(app.InvalidConfig, "boot-data-unusable", "the boot data of this machine cannot be used: %w", err).
		Do("start the workflow again: it makes new boot data")
}

func checkURLs(field string, urls []string, scheme string, need bool) error {
	if need && len(urls) == 0 {
		return fmt.Errorf("%s: none given", field)
	}
	if len(urls) > maxURLs {
		return fmt.Errorf("%s: %d given, the limit is %d", field, len(urls), maxURLs)
	}
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != scheme || u.Host == "" || u.User != nil {
			return fmt.Errorf("%s: %.100q is not an %s URL", field, s, scheme)
		}
		if net.ParseIP(u.Hostname()) == nil {
			return fmt.Errorf("%s: %.100q names a host: the ramdisk has no resolver, give an address", field, s)
		}
	}
	return nil
}

// ParseCommandKey decodes the base64 Ed25519 public key of the boot data.
func ParseCommandKey(s string) (ed25519.PublicKey, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("commandKey: not a base64 Ed25519 public key")
	}
	return ed25519.PublicKey(b), nil
}

func parsePin(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ToLower(s))
	if err != nil || len(b) != 32 {
		return nil, errors.New("agentPin: not a hex SHA-256 digest")
	}
	return b, nil
}
