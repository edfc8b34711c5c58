package api

import (
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
)

// Limits of an enrolment.
const (
	maxMACs    = 64
	maxOptions = 64 << 10
)

// normalize checks an enrolment and brings its addresses to their one form.
func (in *EnrollInput) normalize() error {
	if err := validMachineName(in.Name); err != nil {
		return err
	}
	if in.BMC == nil && len(in.MACs) == 0 && in.ProductUUID == "" {
		return app.Invalid("bmc", "nothing tells this machine from others").Do("give its BMC, a MAC address or its product UUID")
	}
	if in.BMC != nil {
		if err := in.BMC.normalize("bmc"); err != nil {
			return err
		}
	}
	if len(in.MACs) > maxMACs {
		return app.Invalid("macs", "lists %d addresses, the limit is %d", len(in.MACs), maxMACs)
	}
	for i, s := range in.MACs {
		mac, err := app.ParseMAC(string(s))
		if err != nil {
			return at(err, "macs")
		}
		in.MACs[i] = mac
	}
	if in.ProductUUID != "" {
		u, err := app.ParseUUID(string(in.ProductUUID))
		if err != nil {
			return at(err, "productUuid")
		}
		if u == "" {
			return app.Invalid("productUuid", "is a placeholder that many machines carry").Do("leave it out")
		}
		in.ProductUUID = u
	}
	switch in.Firmware {
	case "", app.FirmwareBIOS, app.FirmwareUEFI:
	default:
		return app.Invalid("firmware", "is not how a machine boots").Do("use bios or uefi, or leave it out")
	}
	if len(in.Note) > maxNote {
		return app.Invalid("note", "is longer than %d bytes", maxNote)
	}
	if err := app.ValidBindings(in.Drivers); err != nil {
		return firstProblem(err)
	}
	return validLabels(in.Labels)
}

// normalize checks a BMC's connection facts.
func (b *BMCInput) normalize(field string) error {
	b.Driver, b.Address = strings.TrimSpace(b.Driver), strings.TrimSpace(b.Address)
	if err := app.ValidName(field+".driver", b.Driver); err != nil {
		return err
	}
	if b.Address == "" {
		return app.Invalid(field+".address", "is empty").Do("give the BMC's host name, IP address or URL")
	}
	if err := app.ValidLine(field+".address", b.Address, 255); err != nil {
		return err
	}
	if err := b.checkLogin(field); err != nil {
		return err
	}
	pin := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(b.SPKI), ":", ""))
	if raw, err := hex.DecodeString(pin); err != nil || (pin != "" && len(raw) != 32) {
		return app.Invalid(field+".tlsSpkiSha256", "is not a SHA-256 digest").Do("give 64 hexadecimal digits, or nothing to trust the first certificate seen")
	}
	b.SPKI = pin
	var object map[string]json.RawMessage
	if len(b.Options) > maxOptions || len(b.Options) > 0 && (json.Unmarshal(b.Options, &object) != nil || object == nil) {
		return app.Invalid(field+".driverOptions", "is not a JSON object of at most %d bytes", maxOptions)
	}
	return nil
}

func (b *BMCInput) checkLogin(field string) error {
	if b.Credentials == nil {
		if b.CredentialsRef == "" {
			return app.Invalid(field+".credentials", "is missing").Do("give a user name and a password, or credentialsRef")
		}
		return at(secret.ValidRef(b.CredentialsRef), field+".credentialsRef")
	}
	if b.CredentialsRef != "" {
		return app.Invalid(field+".credentials", "is given twice").Do("give either credentials or credentialsRef")
	}
	if c := b.Credentials; c.Username == "" || c.Password == "" || len(c.Username) > 128 || len(c.Password) > 256 {
		return app.Invalid(field+".credentials", "lacks the user name or the password, or one of them is too long").
			Do("type both; the password is not kept between tries")
	}
	return nil
}

// at names the field of an error that was made for another one.
func at(err error, field string) error {
	if e, ok := app.AsError(err); ok {
		return e.At(field)
	}
	return err
}
