package redfish

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// ID is the id of the built-in Redfish driver.
const ID = "redfish"

// Version of the driver.
const Version = "1.0.0"

// Config sets a Driver up. The zero value works.
type Config struct {
	Logger      *slog.Logger  // nil: discarded
	IdleTimeout time.Duration // a session unused for so long is deleted; default 2 min
	PowerBudget time.Duration // longest wait for a power change to show; default 5 min
	// Patience, when not 0, takes the place of each limit of one exchange: for the connection, the handshake, the answer, the
	// login and the logout. It is for hosts that stand still now and then.
	Patience time.Duration
	// Wait sleeps between polls and ends early with ctx; nil: a timer. Tests inject a clock here.
	Wait func(ctx context.Context, d time.Duration) error
	// Now is the clock a BMC's is compared with; nil: time.Now.
	Now func() time.Time
}

// Driver holds the sessions of all BMCs it was used for. Close it.
type Driver struct {
	log         *slog.Logger
	idleTimeout time.Duration
	powerBudget time.Duration
	limits      limits
	wait        func(context.Context, time.Duration) error
	now         func() time.Time

	mu     sync.Mutex
	conns  map[string]*conn
	denied map[string]time.Time // refused logins
	closed bool
	live   sync.WaitGroup // connections whose session is not deleted yet
}

// New makes a Driver.
func New(cfg Config) *Driver {
	d := &Driver{
		log: cfg.Logger, idleTimeout: cfg.IdleTimeout, powerBudget: cfg.PowerBudget, limits: limitsOf(cfg.Patience),
		wait: cfg.Wait, now: cfg.Now, conns: map[string]*conn{}, denied: map[string]time.Time{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.idleTimeout <= 0 {
		d.idleTimeout = 2 * time.Minute
	}
	if d.powerBudget <= 0 {
		d.powerBudget = 5 * time.Minute
	}
	if d.wait == nil {
		d.wait = sleep
	}
	if d.now == nil {
		d.now = time.Now
	}
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

// schema is the configuration. What it does not name is refused, so that a misspelt option is found.
const schema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["address"],
  "additionalProperties": false,
  "properties": {
    "address": {"type": "string", "minLength": 1, "maxLength": 512, "description": "HOST, HOST:PORT or https://HOST/redfish/v1/Systems/ID"},
    "tlsSpkiSha256": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$", "description": "SHA-256 of the BMC key, in hex"},
    "options": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "networkBoot": {"enum": ["pxe", "http"], "description": "how the machine boots from the network: by PXE (default) or by UEFI HTTP Boot"}
      }
    }
  }
}`

// bmcConfig is the configuration of one BMC.
type bmcConfig struct {
	Address string `json:"address"`
	SPKI    string `json:"tlsSpkiSha256"`
	Options struct {
		NetworkBoot string `json:"networkBoot"`
	} `json:"options"`
}

// Definition declares the driver over these sessions.
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
		Capabilities: []string{"credential-rotation", "probe", "tls-pin"},
		Implements: map[string]driver.Factory{
			"power":      bind(func(o *operations) any { return power{o} }),
			"management": bind(func(o *operations) any { return management{o} }),
			"inspect":    bind(func(o *operations) any { return inspect{o} }),

			"virtual-media": bind(func(o *operations) any { return media{o} }),
		},
		RetrySafe: map[string][]string{
			"power":      {"getPower"},
			"management": {"setBootDevice", "probe", "getBootOrder", "setBootOrder"},
			"inspect":    {"inspect"},

			"virtual-media": {"eject", "insert"},
		},
		Validate: d.validate,
	}
}

// validate logs in once.
func (d *Driver) validate(ctx *driver.Context, config json.RawMessage) error {
	o, err := d.operations(config)
	if err != nil {
		return err
	}
	return o.use(ctx, readLimit, func(ctx *driver.Context, c *conn) error {
		_, err := c.findSystem(ctx)
		return err
	})
}

// operations is the driver bound to one BMC's configuration.
type operations struct {
	*Driver
	target target
	pin    string
	http   bool // the network is booted by UEFI HTTP Boot
}

func (d *Driver) operations(config json.RawMessage) (*operations, error) {
	var cfg bmcConfig
	if err := json.Unmarshal(config, &cfg); err != nil {
		return nil, driver.Errorf(driver.CodeInvalidConfig, "the BMC configuration cannot be read: %w", err)
	}
	t, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	return &operations{Driver: d, target: t, pin: cfg.SPKI, http: cfg.Options.NetworkBoot == "http"}, nil
}

// newConn makes a connection to the BMC; first lets it take the first key it sees for the pinned one.
func (o *operations) newConn(user, password string, first bool) *conn {
	return &conn{client: newClient(o.target, o.pin, first, o.limits), user: user, password: password, wait: o.wait}
}

// credentials are the delivered user name and password.
func credentials(ctx *driver.Context) (user, password string, err error) {
	if user, err = ctx.Secret("username"); err != nil {
		return "", "", err
	}
	password, err = ctx.Secret("password")
	return user, password, err
}
