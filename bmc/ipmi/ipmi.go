package ipmi

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// What the driver calls itself.
const (
	ID      = "ipmi"
	Version = "1.0.0"
)

// Config is what a Driver is made of. The zero value works.
type Config struct {
	Logger *slog.Logger // nil: discarded
	// Tool is the absolute path of ipmitool; "" looks for it in /usr/bin, /usr/sbin, /usr/local/bin and /usr/local/sbin.
	Tool        string
	RunLimit    time.Duration // of one run of ipmitool; default 30 s
	PowerBudget time.Duration // longest wait for a power change to show; default 5 min
	Retries     int           // times that ipmitool asks a silent BMC again; default 2, so that it gives up after some 10 s
	// Wait sleeps between polls and ends early with ctx; nil: a timer. Tests inject a clock here.
	Wait func(ctx context.Context, d time.Duration) error
}

// Driver drives BMCs. It holds nothing between calls but its configuration.
type Driver struct {
	log         *slog.Logger
	tool        string
	runLimit    time.Duration
	powerBudget time.Duration
	retries     int
	wait        func(context.Context, time.Duration) error
	exec        func(context.Context, *login, command) (answer, error) // runs ipmitool; tests script it
	https       func(ctx context.Context, host string) bool            // reports whether HTTPS is open there; tests script it
}

// New makes a Driver.
func New(cfg Config) *Driver {
	d := &Driver{log: cfg.Logger, tool: cfg.Tool, runLimit: cfg.RunLimit, powerBudget: cfg.PowerBudget, retries: cfg.Retries, wait: cfg.Wait}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.runLimit <= 0 {
		d.runLimit = 30 * time.Second
	}
	if d.powerBudget <= 0 {
		d.powerBudget = 5 * time.Minute
	}
	if d.retries <= 0 {
		d.retries = 2
	}
	if d.wait == nil {
		d.wait = sleep
	}
	d.exec, d.https = d.execute, httpsOpen
	return d
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Health tells whether the driver can work at all: nil, or why not. A plugin answers it as NOT_SERVING.
func (d *Driver) Health(context.Context) error {
	_, err := d.toolPath()
	return err
}

// schema is the configuration. tlsSpkiSha256 is admitted so that it can be refused for what it is.
const schema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["address"],
  "additionalProperties": false,
  "properties": {
    "address": {"type": "string", "minLength": 1, "maxLength": 512, "description": "HOST or HOST:PORT, port 623 unless given"},
    "tlsSpkiSha256": {"type": "string", "maxLength": 128, "description": "not supported: IPMI has no TLS"},
    "options": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "cipherSuite": {"type": "integer", "enum": [3, 8, 12, 17], "default": 17, "description": "RMCP+ cipher suite; 3, 8 and 12 are for old BMCs"},
        "kg": {"type": "string", "minLength": 1, "maxLength": 512, "x-bc": {"kind": "secret"}, "description": "reference to the secret that holds the BMC key K_g: at most 20 bytes of text, or 0x and hex digits"},
        "privilege": {"type": "string", "enum": ["administrator", "operator", "user", "ADMINISTRATOR", "OPERATOR", "USER"], "description": "privilege level of the session; administrator unless given"}
      }
    }
  }
}`

// bmcConfig is the configuration of one BMC.
type bmcConfig struct {
	Address string `json:"address"`
	SPKI    string `json:"tlsSpkiSha256"`
	Options struct {
		CipherSuite int    `json:"cipherSuite"`
		KG          string `json:"kg"`
		Privilege   string `json:"privilege"`
	} `json:"options"`
}

// Definition declares the driver.
func (d *Driver) Definition() driver.Definition {
	bind := func(make func(*operations) any) driver.Factory {
		return func(config json.RawMessage) (any, error) {
			o, err := d.operations(config)
			if err != nil {
				return nil, err
			}
			return make(o), nil
		}
	}
	return driver.Definition{
		ID: ID, Version: Version, RunsOn: driver.RunsOnSite, Config: []byte(schema),
		Implements: map[string]driver.Factory{
			"power":      bind(func(o *operations) any { return power{o} }),
			"management": bind(func(o *operations) any { return management{o} }),
			"inspect":    bind(func(o *operations) any { return inspect{o} }),
			"console":    bind(func(o *operations) any { return console{o} }),
		},
		Operations: map[string][]string{"management": {"setBootDevice"}},
		RetrySafe: map[string][]string{
			"power":      {"getPower"},
			"management": {"setBootDevice"},
			"inspect":    {"inspect"},
		},
		Validate: d.validate,
	}
}

// validate logs in once and reads the power.
func (d *Driver) validate(ctx *driver.Context, config json.RawMessage) error {
	o, err := d.operations(config)
	if err != nil {
		return err
	}
	_, err = power{o}.GetPower(ctx)
	return err
}

// operations is the driver bound to one BMC's configuration.
type operations struct {
	*Driver
	target    target
	suite     int
	kg        string // reference to the BMC key; "" none
	privilege string // ipmitool's word; "" its default, administrator
}

func (d *Driver) operations(config json.RawMessage) (*operations, error) {
	var cfg bmcConfig
	if err := json.Unmarshal(config, &cfg); err != nil {
		return nil, driver.Errorf(driver.CodeInvalidConfig, "the BMC configuration cannot be read: %w", err)
	}
	if cfg.SPKI != "" {
		return nil, driver.Errorf(CodePinUnsupported, "IPMI has no TLS, so the key pin tlsSpkiSha256 cannot be checked; use a Redfish driver, or remove the pin")
	}
	t, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	o := &operations{Driver: d, target: t, suite: cfg.Options.CipherSuite, kg: cfg.Options.KG, privilege: upper(cfg.Options.Privilege)}
	if o.suite == 0 {
		o.suite = defaultSuite
	}
	if o.kg != "" && !isReference(o.kg) {
		return nil, driver.Errorf(driver.CodeInvalidConfig, "options.kg must name a secret, such as secret://root/bmc-key: the key itself does not belong into a configuration")
	}
	return o, nil
}
