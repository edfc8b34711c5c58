package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/event"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/app/workflow"
)

// Config is what the API needs. Every field is required unless said.
type Config struct {
	Machines  app.MachineStore
	Network   app.NetworkStore
	Images    app.ImageStore
	Events    app.EventStore
	Profiles  app.ProfileStore
	Settings  app.SettingStore
	Workflows workflow.API
	Access    *access.Service
	Secrets   *secret.Vault
	Bus       *event.Bus
	Recorder  *recorder.Recorder
	Service   Service
	Catalog   Catalog
	Drivers   Drivers
	Plugins   Plugins
	Health    Health
	Bindings  Bindings
	Consoles  *serial.Consoles

	Approvals  app.ApprovalStore
	Operations app.BMCOperationStore
	BootOrders app.BootOrderStore
	Kexec      app.KexecStore

	Certificates app.CertificateStore
	// DestructiveBatch is how many machines one person may do something to at once that cannot be taken back; default
	// DefaultDestructiveBatch.
	DestructiveBatch int
	// SiteName is what the site is called until a person gives it another name in the settings; "" calls it nothing.
	SiteName string
	// Key gives the SHA-256 of the console's TLS key, in hex. May be nil.
	Key func() string

	Wire    Wire             // nil: no network is served
	Version string           // of the program
	Log     *slog.Logger     //
	Now     func() time.Time // default time.Now
	// StallTime is the longest pause of an upload; default a minute.
	StallTime time.Duration
}

// API answers the routes of Routes. It is safe for concurrent use.
type API struct {
	Config
	routes []Route
	byID   map[string]*Route
	doc    []byte
}

// New makes the API and its OpenAPI document.
func New(c Config) (*API, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.DestructiveBatch <= 0 {
		c.DestructiveBatch = DefaultDestructiveBatch
	}
	if c.StallTime <= 0 {
		c.StallTime = stallTime
	}
	a := &API{Config: c, byID: map[string]*Route{}}
	a.routes = a.table()
	for i := range a.routes {
		a.byID[a.routes[i].ID] = &a.routes[i]
	}
	doc, err := OpenAPI(a.routes, c.Version)
	if err != nil {
		return nil, err
	}
	a.doc = doc
	return a, nil
}

// Routes lists what the API serves, in the order of the documentation.
func (a *API) Routes() []Route { return a.routes }

// Routes lists the table without an API behind it: for documentation and command lines. Its handlers cannot be called.
func Routes() []Route { return (*API)(nil).table() }

// Who may call a route: a permission, or one of these two.
const (
	Public   app.Permission = "public"
	LoggedIn app.Permission = "logged-in"
)

// Route is one entry of the table.
type Route struct {
	ID         string         // "machines.enroll": the OpenAPI operationId, and the name for Invoke
	Method     string         //
	Path       string         // "/api/v1/machines/{id}"
	Permission app.Permission // or Public, LoggedIn
	Summary    string         // one sentence
	Query      []Param        // what a GET may ask; nothing else is accepted
	Headers    []Param        //
	Status     int            // of success
	CLI        CLI            // zero: not on the command line
	Args       []string       // members of the body that the command line takes as arguments
	Raw        bool           // the request's or the answer's body is not JSON
	Duplex     bool           // both are streams of bytes, sent at once
	Request    reflect.Type   // nil: no body
	Response   reflect.Type   // nil: no content
	run        func(*Call) (any, error)
}

// Param is a query or header parameter.
type Param struct {
	Name, Type, Help string // Type is a JSON Schema type
}

// CLI places a route on the command line: bcd NOUN VERB.
type CLI struct {
	Noun, Verb string
}

// Call is one use of a route, over HTTP or in process.
type Call struct {
	context.Context
	Who    *access.Identity // nil when nobody is logged in
	Remote string           // address of the caller, host:port
	Path   map[string]string
	Query  url.Values
	Login  *access.Login // filled in by routes that open a session; the caller sets the cookie
	Logout bool          // filled in by routes that end the session

	in any // the decoded input of an in-process call
	w  http.ResponseWriter
	r  *http.Request
	a  *API
}

// none is the input or output of routes that have none.
type none struct{}

// rawInput is the input of routes that read their body themselves.
type rawInput struct{}

// on fills in a route's types and handler from a function.
func on[In, Out any](rt Route, f func(*Call, In) (Out, error)) Route {
	rt.Request, rt.Response = typeOf[In](), typeOf[Out]()
	if rt.Status == 0 {
		rt.Status = http.StatusOK
		if rt.Response == nil && !rt.Raw {
			rt.Status = http.StatusNoContent
		}
	}
	rt.run = func(c *Call) (any, error) {
		in, err := input[In](c)
		if err != nil {
			return nil, err
		}
		return f(c, in)
	}
	return rt
}

func typeOf[T any]() reflect.Type {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[none]() || t == reflect.TypeFor[rawInput]() {
		return nil
	}
	return t
}

// input is the body of an HTTP call or the value of an in-process one.
func input[In any](c *Call) (In, error) {
	var in In
	if c.r != nil {
		err := decode(c.r, &in)
		Received(c.w)
		return in, err
	}
	if v, ok := c.in.(In); ok {
		return v, nil
	}
	if c.in == nil {
		return in, nil
	}
	return in, app.Errorf(app.Internal, "wrong-input", "a call in process passed %T for %T", c.in, in)
}

// Invoke calls a route in process, with the same permission and checks as over HTTP. The result has the route's Response
// type.
func (a *API) Invoke(c *Call, id string, in any) (any, error) {
	rt, ok := a.byID[id]
	if !ok || rt.Raw {
		return nil, app.Errorf(app.Internal, "no-route", "no route %q can be called in process", id)
	}
	c.in = in
	return a.do(c, rt)
}

// do checks the permission and runs.
func (a *API) do(c *Call, rt *Route) (any, error) {
	c.a = a
	switch {
	case rt.Permission == Public:
	case c.Who == nil:
		return nil, app.Errorf(app.Unauthenticated, "not-logged-in", "this needs a login").
			Do("log in, or send an API token as \"Authorization: Bearer …\"")
	case rt.Permission == LoggedIn:
	default:
		if err := c.Who.Need(rt.Permission); err != nil {
			return nil, err
		}
	}
	return rt.run(c)
}

// Ask is Invoke with the type of the answer.
func Ask[Out any](a *API, c *Call, id string, in any) (Out, error) {
	v, err := a.Invoke(c, id, in)
	out, _ := v.(Out)
	return out, err
}
