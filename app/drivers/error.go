package drivers

import (
	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// failure is how a driver's error code reaches people.
type failure struct {
	code   app.Code
	wayOut string
}

var failures = map[string]failure{
	driver.CodeInvalidConfig:   {app.InvalidConfig, "correct the machine's driver configuration"},
	driver.CodeInvalidArgs:     {app.InvalidInput, ""},
	driver.CodeUnsupported:     {app.Unsupported, ""},
	driver.CodeUnreachable:     {app.Unavailable, "check the BMC's address, cabling and power"},
	driver.CodeUnavailable:     {app.Unavailable, "see the plugin's state under Drivers"},
	driver.CodeAuthFailed:      {app.InvalidConfig, "correct the BMC's user name and password"},
	driver.CodeNoCredentials:   {app.InvalidConfig, "store the BMC's credentials again"},
	driver.CodePinMismatch:     {app.Conflict, "accept the new key only if the certificate was replaced on purpose"},
	driver.CodeUntrusted:       {app.InvalidConfig, "test the connection and accept the key it shows"},
	driver.CodeBMCError:        {app.Unavailable, "look at the BMC's own log"},
	driver.CodeBusy:            {app.Unavailable, "try again in a minute"},
	driver.CodeTimeout:         {app.Timeout, "check the machine at its console"},
	driver.CodeCancelled:       {app.Unavailable, ""},
	driver.CodeNotApplied:      {app.Conflict, ""},
	"invalid-address":          {app.InvalidInput, "correct the BMC's address"},
	"not-found":                {app.Unsupported, "update the BMC's firmware"},
	"ambiguous-system":         {app.InvalidInput, "name one system in the BMC's address"},
	"access-denied":            {app.InvalidConfig, "give the BMC's account the administrator role"},
	"password-change-required": {app.InvalidConfig, "change the password on the BMC, then store the new one"},
	"tls-failed":               {app.Unavailable, "update the BMC's firmware"},
	"licence-missing":          {app.Unsupported, "add the licence to the BMC"},
	"pin-unsupported":          {app.InvalidConfig, "remove the key pin, or use a Redfish driver"},
}

// Error turns a driver's error into one for people. The driver's code becomes the reason.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := app.AsError(err); ok {
		return e
	}
	e := driver.AsError(err)
	f, known := failures[e.Code]
	if !known {
		f = failure{code: app.Unavailable}
	}
	out := app.Errorf(f.code, e.Code, "%w", e)
	if f.wayOut != "" {
		out = out.Do("%s", f.wayOut)
	}
	if e.Retryable {
		out = out.Retryable()
	}
	return out
}
