package redfish

import (
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// target is a parsed BMC address: the origin, and the system inside a BMC that has several.
type target struct {
	host   string // host name or IP, without brackets or zone
	origin string // "https://192.0.2.10:443", always with a port
	system string // "/redfish/v1/Systems/Node0", or "" to find it
}

var hostRE = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,251}[a-zA-Z0-9])?$`)

// parseAddress reads 192.0.2.10, [2001:db8::10]:8443, 2001:db8::10, bmc.example:443, each with or without https:// in
// front and the path of one system behind. Plain http is refused: it would carry the password in clear.
func parseAddress(s string) (target, error) {
	bad := func(why string) (target, error) {
		return target{}, driver.Errorf("invalid-address", "the BMC address %q cannot be used: %s", clip(s, 80), why)
	}
	rest, explicit := strings.CutPrefix(s, "https://")
	if !explicit && strings.Contains(s, "://") {
		return bad("only https is spoken to a Redfish BMC")
	}
	if len(s) > 512 {
		return bad("it is too long")
	}
	authority, system, hasPath := strings.Cut(rest, "/")
	if hasPath && system != "" {
		system = path.Clean("/" + system)
		if !strings.HasPrefix(system, "/redfish/v1/Systems/") || strings.ContainsAny(system, "?#%") {
			return bad("a path must name one system, such as /redfish/v1/Systems/1")
		}
	}
	host, port, err := splitHostPort(authority)
	if err != nil {
		return bad("write it as HOST, HOST:PORT or [IPv6]:PORT")
	}
	t := target{host: host, origin: "https://" + net.JoinHostPort(host, port), system: system}
	if _, err := url.Parse(t.origin); err != nil {
		return bad("it is not a host name or IP address")
	}
	return t, nil
}

func splitHostPort(s string) (host, port string, err error) {
	port = "443"
	switch {
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		host = s[1 : len(s)-1]
	case strings.HasPrefix(s, "[") || strings.Count(s, ":") == 1:
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", "", err
		}
	default:
		host = s
	}
	if n, perr := strconv.Atoi(port); perr != nil || n < 1 || n > 65535 {
		return "", "", &net.AddrError{Err: "bad port", Addr: s}
	}
	if ip, perr := netip.ParseAddr(host); perr == nil {
		return ip.String(), port, nil
	}
	if !hostRE.MatchString(host) {
		return "", "", &net.AddrError{Err: "bad host", Addr: s}
	}
	return strings.ToLower(host), port, nil
}

// clip bounds and cleans text that came from a BMC or an operator before it goes into a message.
func clip(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return strings.TrimSpace(s)
}
