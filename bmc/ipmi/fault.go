package ipmi

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// The codes of this driver beside the contract's.
const (
	CodeInvalidAddress = "invalid-address"
	CodePinUnsupported = "pin-unsupported"
	CodeCipherSuite    = "cipher-suite-refused" // the BMC does not speak the configured RMCP+ cipher suite
	CodePrivilege      = "privilege-refused"    // the account may not do this
	CodeConsoleOff     = "console-disabled"     // serial over LAN is turned off
)

// noSession is what ipmitool prints for every reason why a session does not open.
const noSession = "Unable to establish IPMI v2 / RMCP+ session"

// ask runs ipmitool and gives its answer, whether or not the BMC did what was asked. An error means that it was never
// asked: no session could be opened, and why.
func (o *operations) ask(ctx *driver.Context, l *login, c command) (answer, error) {
	a, err := o.exec(ctx, l, c)
	if err != nil {
		return a, err
	}
	if !strings.Contains(a.stderr, noSession) {
		return a, nil
	}
	if f := l.sessionFault(a.stderr); f != nil {
		return a, f
	}
	// The reason shows only when asked for; a read is used, so that nothing is done twice.
	why, err := o.exec(ctx, l, command{words: []string{"chassis", "power", "status"}, verbose: true, quick: true})
	switch {
	case err != nil:
		return a, err
	case strings.Contains(why.stderr, silent):
		return a, o.silence(ctx, l)
	case !strings.Contains(why.stderr, noSession):
		return a, driver.Errorf(driver.CodeUnreachable, "the BMC at %s did not open a session at first, and does now: try again", l.target).Again()
	}
	if f := l.sessionFault(why.stderr); f != nil {
		return a, f
	}
	return a, driver.Errorf(driver.CodeUnreachable, "the BMC at %s opens no IPMI session: %s", l.target, l.firstLine(why)).Again()
}

// silent is what ipmitool says, when asked, of a host that never answered.
const silent = "Error issuing Get Channel Authentication Capabilities"

// silence words that nothing answers. iDRAC, iLO, XCC and OpenBMC come with IPMI over LAN turned off, and show by their web
// pages that they are there.
func (o *operations) silence(ctx *driver.Context, l *login) *driver.Error {
	if o.https(ctx, l.target.host) {
		return driver.Errorf(driver.CodeUnreachable, "the BMC at %s answers HTTPS and not IPMI; turn on IPMI over LAN in its settings, or use the driver redfish", l.target).Again()
	}
	return driver.Errorf(driver.CodeUnreachable, "nothing answers IPMI at %s; check the address and the cable, and that IPMI over LAN is turned on", l.target).Again()
}

// httpsOpen reports whether a host takes connections where BMCs have their web pages.
func httpsOpen(ctx context.Context, host string) bool {
	d := net.Dialer{Timeout: 2 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, "443"))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// demand runs ipmitool and fails unless it ends well.
func (o *operations) demand(ctx *driver.Context, l *login, c command) (answer, error) {
	a, err := o.ask(ctx, l, c)
	if err == nil && a.failed() {
		err = l.fault(c, a)
	}
	return a, err
}

// sessionFault finds the reason why a session did not open in what ipmitool says; nil when it does not say.
func (l *login) sessionFault(text string) *driver.Error {
	says := func(phrases ...string) bool {
		return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
	}
	switch {
	case says("no matching cipher suite", "authentication algorithm\n", "integrity payload", "integrity algorithm", "confidentiality algorithm"):
		return driver.Errorf(CodeCipherSuite, "the BMC at %s does not speak cipher suite %d; %s", l.target, l.suite, l.otherSuite())
	case says("insufficient resources"):
		return driver.Errorf(driver.CodeBusy, "the BMC at %s has no session left; end others, or wait until they time out", l.target).Again()
	case says("RAKP 2 HMAC is invalid"):
		return driver.Errorf(driver.CodeAuthFailed, "the BMC at %s refuses the password of %s, or does not know the user", l.target, l.user)
	case says("unauthorized role", "invalid role"):
		return l.privilegeFault("the BMC at " + l.target.String() + " does not let " + l.user + " have the privilege " + l.level())
	case says("RAKP 2 message indicates an error"):
		return driver.Errorf(driver.CodeAuthFailed, "the BMC at %s refuses the user %s; check the name, that it may use IPMI over LAN, and its privilege", l.target, l.user)
	case says("RAKP 4 message"):
		return driver.Errorf(driver.CodeAuthFailed, "the BMC at %s has %s; set the option kg to the secret that holds its BMC key", l.target, l.keyState())
	case says("Set Session Privilege Level to"):
		return l.privilegeFault("the BMC at " + l.target.String() + " does not let " + l.user + " have the privilege " + l.level())
	case says("Address lookup for"):
		return driver.Errorf(driver.CodeUnreachable, "the name %s of the BMC does not resolve; correct the address, or give its IP address", l.target.host).Again()
	case says("no response from RAKP"):
		return driver.Errorf(driver.CodeUnreachable, "the BMC at %s stops answering during the login of %s; some do so for a user they do not know", l.target, l.user).Again()
	}
	return nil
}

// otherSuite is the way out of a refused cipher suite. The driver never changes it by itself.
func (l *login) otherSuite() string {
	if l.suite == defaultSuite {
		return "if it is an old BMC, set the option cipherSuite to 3, whose SHA-1 is weaker"
	}
	return "remove the option cipherSuite, or set it to one of 3, 8, 12 and 17 that the BMC has"
}

func (l *login) keyState() string {
	if l.key == nil {
		return "a BMC key (K_g) of its own, or another fault in its answer to the login"
	}
	return "another BMC key (K_g) than the given one"
}

func (l *login) level() string {
	if l.privilege == "" {
		return "ADMINISTRATOR"
	}
	return l.privilege
}

func (l *login) privilegeFault(what string) *driver.Error {
	way := "raise its privilege on the BMC"
	if l.level() == "ADMINISTRATOR" {
		way += ", or set the option privilege to operator"
	}
	return driver.Errorf(CodePrivilege, "%s; %s", what, way)
}

// passing are refusals of a BMC that go away by themselves.
var passing = []string{"Node busy", "BMC initialization in progress", "in update mode"}

// fault words a failed run.
func (l *login) fault(c command, a answer) *driver.Error {
	text := a.stderr + a.stdout
	line := l.firstLine(a)
	switch {
	case strings.Contains(text, "Insufficient privilege level"):
		return l.privilegeFault("the BMC at " + l.target.String() + " does not let " + l.user + " do this (" + line + ")")
	case slices.ContainsFunc(passing, func(p string) bool { return strings.Contains(text, p) }):
		return driver.Errorf(driver.CodeBusy, "the BMC at %s cannot do %q now: %s", l.target, c, line).Again()
	}
	return driver.Errorf(driver.CodeBMCError, "the BMC at %s failed at %q: %s", l.target, c, line).Again()
}

// chatter are lines of ipmitool that say nothing about a failure.
var chatter = []string{
	"Unable to Get Channel Cipher Suites", "Get Channel Cipher Suites failed", "IANA PEN",
	"Using best available cipher suite", "Running Get", "Error response 0x", "Invalid completion code received", "Discovered IPMB address",
	"Failed to Close Session", "tcgetattr:", "Key: ", noSession,
}

// firstLine is the first line of a run's output that says something: errors before results, bounded and cleaned.
func (l *login) firstLine(a answer) string {
	for line := range strings.Lines(a.stderr + "\n" + a.stdout) {
		line = clean(line, 200)
		if line != "" && !slices.ContainsFunc(chatter, func(c string) bool { return strings.Contains(line, strings.TrimSpace(c)) }) {
			return l.redact(line)
		}
	}
	switch {
	case a.signal != "":
		return "ipmitool ended by a signal (" + a.signal + ")"
	case a.failed():
		return "it gave no reason"
	}
	return "it gave another answer than expected"
}
