package api

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/better-compute/bcd/app"
)

// BMCChange says how a machine's BMC is reached from now on.
type BMCChange struct {
	Driver         string          `json:"driver,omitempty" doc:"driver of the BMC: redfish, ipmi, or one of a plugin; a machine without a BMC is given one by driver, address and login"`
	Address        string          `json:"address,omitempty" doc:"host name, IP address or https URL of the BMC; absent: as it is"`
	AcceptPin      string          `json:"acceptPin,omitempty" doc:"SHA-256 of the TLS key to accept from now on, 64 hex digits; absent: the pinned one, or the first one seen of a BMC that had none"`
	CredentialsRef string          `json:"credentialsRef,omitempty" doc:"stored secret that holds the login"`
	Credentials    *Credentials    `json:"credentials,omitempty"`
	Options        json.RawMessage `json:"driverOptions,omitempty" doc:"options of the driver, in place of the old ones"`
	Another        bool            `json:"anotherMachine,omitempty" doc:"accept a BMC that says it is of another machine: its board was replaced"`
	Test           bool            `json:"test,omitempty" doc:"only ask the BMC who it is, and change nothing"`
}

// BMCChanged is what the BMC said, and the machine as it is kept now.
type BMCChanged struct {
	Card    *Card        `json:"card"`
	Machine *app.Machine `json:"machine,omitempty"` // absent: nothing was changed
}

// normalize checks the form of a change.
func (in *BMCChange) normalize() error {
	in.Driver = strings.TrimSpace(in.Driver)
	if in.Driver == "" && in.Address == "" && in.AcceptPin == "" && in.CredentialsRef == "" && in.Credentials == nil && in.Options == nil && !in.Test {
		return app.Invalid("address", "nothing is to be changed").Do("give another driver, address, key, login or options")
	}
	b := BMCInput{Driver: cmp.Or(in.Driver, "as-it-is"), Address: in.Address, CredentialsRef: in.CredentialsRef, Credentials: in.Credentials, SPKI: in.AcceptPin, Options: in.Options}
	if b.Address == "" {
		b.Address = "as-it-is"
	}
	if b.Credentials == nil && b.CredentialsRef == "" {
		b.CredentialsRef = "secret://root/as-it-is"
	}
	if err := b.normalize("bmc"); err != nil {
		return err
	}
	if in.Address != "" {
		in.Address = b.Address
	}
	in.AcceptPin = b.SPKI
	return nil
}

func (a *API) setBMC(c *Call, in BMCChange) (*BMCChanged, error) {
	if err := in.normalize(); err != nil {
		return nil, ofBMC(err)
	}
	out, err := a.Service.SetBMC(c, c.actor(), c.Path["id"], in)
	return out, ofBMC(err)
}

// ofBMC names the member of a change that an error about a whole machine's BMC is about.
func ofBMC(err error) error {
	e, ok := app.AsError(err)
	if !ok {
		return err
	}
	member, ok := strings.CutPrefix(e.Field, "bmc.")
	if !ok {
		return err
	}
	if member == "tlsSpkiSha256" {
		member = "acceptPin"
	}
	return e.At(member)
}
