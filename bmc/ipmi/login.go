package ipmi

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	defaultSuite = 17
	maxUser      = 16 // bytes, of IPMI 2.0 and of ipmitool
	maxPassword  = 20 // bytes, of IPMI 2.0
	maxKey       = 20 // bytes of K_g
)

var userRE = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)

// login is how one operation opens its sessions.
type login struct {
	target    target
	user      string
	password  string
	key       []byte // K_g; nil: none
	suite     int
	privilege string
	retries   int
}

// login takes the delivered secrets and checks that ipmitool can pass them on unchanged.
func (o *operations) login(ctx *driver.Context) (*login, error) {
	l := &login{target: o.target, suite: o.suite, privilege: o.privilege, retries: o.retries}
	var err error
	if l.user, err = ctx.Secret("username"); err != nil {
		return nil, err
	}
	if l.password, err = ctx.Secret("password"); err != nil {
		return nil, err
	}
	if err := checkUser(l.user); err != nil {
		return nil, err
	}
	if err := checkPassword(l.password); err != nil {
		return nil, err
	}
	if o.kg == "" {
		return l, nil
	}
	value, err := ctx.Secret(o.kg)
	if err != nil {
		return nil, err
	}
	l.key, err = parseKey(value)
	return l, err
}

func unfit(format string, args ...any) error {
	return driver.Errorf(driver.CodeNoCredentials, format, args...)
}

func checkUser(user string) error {
	switch {
	case !userRE.MatchString(user):
		return unfit("the user name of the BMC must be letters, digits, dots, underscores, hyphens and @")
	case len(user) > maxUser:
		return unfit("the user name of the BMC has %d bytes, and IPMI takes at most %d; make a shorter account for it", len(user), maxUser)
	}
	return nil
}

func checkPassword(password string) error {
	switch {
	case password == "":
		return unfit("the password of the BMC is empty")
	case len(password) > maxPassword:
		return unfit("the password of the BMC has %d bytes, and IPMI takes at most %d; set a shorter one on the BMC", len(password), maxPassword)
	case strings.ContainsFunc(password, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return unfit("the password of the BMC contains whitespace or control characters, which ipmitool cannot take; set another one on the BMC")
	}
	return nil
}

// parseKey reads a BMC key: 0x and hex digits, else the bytes of the text. The key goes to ipmitool as a line, so it may
// hold neither a line end nor a zero byte before its end; zeros at the end are what shorter keys are filled up with.
func parseKey(text string) ([]byte, error) {
	key := []byte(text)
	if digits, isHex := strings.CutPrefix(strings.ToLower(text), "0x"); isHex {
		b, err := hex.DecodeString(digits)
		if err != nil {
			return nil, unfit("the BMC key begins with 0x and goes on with something else than pairs of hex digits")
		}
		key = b
	}
	key = bytes.TrimRight(key, "\x00")
	switch {
	case len(key) == 0:
		return nil, unfit("the BMC key is empty")
	case len(key) > maxKey:
		return nil, unfit("the BMC key has %d bytes, the limit is %d", len(key), maxKey)
	case bytes.ContainsAny(key, "\x00\r\n"):
		return nil, unfit("the BMC key holds a zero byte or a line end, which ipmitool cannot take; set another one on the BMC")
	}
	return key, nil
}

// isReference reports whether a value names a secret.
func isReference(s string) bool {
	return slices.ContainsFunc([]string{"secret://", "vault://", "env://"}, func(scheme string) bool { return strings.HasPrefix(s, scheme) })
}

func upper(s string) string { return strings.ToUpper(s) }

// redact takes the secrets out of a text that a person may see.
func (l *login) redact(s string) string {
	for _, secret := range []string{l.password, string(l.key)} {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "***")
		}
	}
	return s
}
