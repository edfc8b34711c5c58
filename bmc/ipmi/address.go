package ipmi

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

const defaultPort = "623"

// target is where a BMC listens.
type target struct{ host, port string }

// String gives HOST:PORT.
func (t target) String() string { return net.JoinHostPort(t.host, t.port) }

var (
	schemeRE   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	hostNameRE = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*\.?$`)
	zoneRE     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`)
	numericRE  = regexp.MustCompile(`^([0-9]+|0[xX][0-9a-fA-F]*)$`)
)

// parseAddress reads HOST, HOST:PORT, IPv6 and [IPv6]:PORT, with or without a scheme before it.
func parseAddress(s string) (target, error) {
	bad := func() (target, error) {
		return target{}, driver.Errorf(CodeInvalidAddress, "%q is no address of a BMC; give a host name or an IP address, with a port if it is not 623", clip(s, 80))
	}
	rest := strings.TrimSpace(s)
	rest = rest[len(schemeRE.FindString(rest)):]
	host, port := rest, defaultPort
	switch {
	case isAddr(rest): // an IPv6 address without brackets, too
	case strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]"):
		host = rest[1 : len(rest)-1]
		if !strings.Contains(host, ":") {
			return bad()
		}
	case strings.Contains(rest, ":"):
		h, p, err := net.SplitHostPort(rest)
		if err != nil || strings.HasPrefix(rest, "[") != strings.Contains(h, ":") {
			return bad()
		}
		host, port = h, p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || !isHost(host) {
		return bad()
	}
	return target{host: host, port: strconv.FormatUint(n, 10)}, nil
}

// isHost reports an IP address or a host name. A name whose last label is a number is neither: the resolver would read
// "10.1" as 10.0.0.1.
func isHost(s string) bool {
	if isAddr(s) {
		return true
	}
	labels := strings.Split(strings.TrimSuffix(s, "."), ".")
	return len(s) <= 253 && hostNameRE.MatchString(s) && !numericRE.MatchString(labels[len(labels)-1])
}

func isAddr(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && (a.Zone() == "" || zoneRE.MatchString(a.Zone()))
}
