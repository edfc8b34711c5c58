package api

import (
	"net/http"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
)

// SetupStatus says whether the first administrator is still to be made.
type SetupStatus struct {
	Needed bool `json:"needed"`
}

// SetupInput creates the first administrator.
type SetupInput struct {
	Code     string `json:"code" doc:"code printed on the appliance's terminal"`
	Name     string `json:"name" doc:"name of the first administrator"`
	Password string `json:"password" doc:"password" secret:"true"`
}

// LoginInput opens a session.
type LoginInput struct {
	Name     string `json:"name" doc:"user name"`
	Password string `json:"password" doc:"password" secret:"true"`
}

// Whoami is who makes the request and what they may do.
type Whoami struct {
	User        app.User         `json:"user"`
	Permissions []app.Permission `json:"permissions"`
	Token       string           `json:"token,omitempty"`  // name of the API token in use
	Expires     time.Time        `json:"expires,omitzero"` // of a fresh session
}

// PasswordInput changes one's own password.
type PasswordInput struct {
	Old string `json:"old" doc:"present password" secret:"true"`
	New string `json:"new" doc:"new password" secret:"true"`
}

func (a *API) sessionRoutes() []Route {
	return []Route{
		on(Route{ID: "setup.status", Method: "GET", Path: "/api/v1/setup", Permission: Public, Summary: "Say whether the first administrator is still to be made."}, a.setupStatus),
		on(Route{ID: "setup.create", Method: "POST", Path: "/api/v1/setup", Permission: Public, Status: http.StatusCreated,
			Summary: "Create the first administrator with the code from the terminal, and log in."}, a.setupCreate),
		on(Route{ID: "session.login", Method: "POST", Path: "/api/v1/session", Permission: Public, Status: http.StatusCreated,
			Summary: "Log in; the answer sets the session cookie.", CLI: CLI{"session", "login"}}, a.login),
		on(Route{ID: "session.show", Method: "GET", Path: "/api/v1/session", Permission: LoggedIn, Summary: "Say who you are and what you may do.", CLI: CLI{"session", "show"}}, a.whoami),
		on(Route{ID: "session.logout", Method: "DELETE", Path: "/api/v1/session", Permission: LoggedIn, Summary: "Log out.", CLI: CLI{"session", "logout"}}, a.logout),
		on(Route{ID: "session.password", Method: "POST", Path: "/api/v1/session/password", Permission: LoggedIn,
			Summary: "Change your own password; your other sessions end."}, a.password),
	}
}

func (a *API) setupStatus(c *Call, _ none) (SetupStatus, error) {
	need, err := a.Access.NeedsSetup(c)
	return SetupStatus{Needed: need}, err
}

func (a *API) setupCreate(c *Call, in SetupInput) (*Whoami, error) {
	l, err := a.Access.Setup(c, in.Code, in.Name, in.Password, c.Remote)
	return c.enter(l, err)
}

func (a *API) login(c *Call, in LoginInput) (*Whoami, error) {
	l, err := a.Access.Login(c, in.Name, in.Password, c.Remote)
	return c.enter(l, err)
}

func (a *API) password(c *Call, in PasswordInput) (*Whoami, error) {
	l, err := a.Access.ChangePassword(c, c.Who, in.Old, in.New, c.Remote)
	return c.enter(l, err)
}

func (c *Call) enter(l *access.Login, err error) (*Whoami, error) {
	if err != nil {
		return nil, err
	}
	c.Login = l
	return &Whoami{User: l.Identity.User, Permissions: l.Identity.Permissions, Expires: l.Expires}, nil
}

func (a *API) whoami(c *Call, _ none) (*Whoami, error) {
	out := &Whoami{User: c.Who.User, Permissions: c.Who.Permissions}
	if c.Who.Token != nil {
		out.Token = c.Who.Token.Name
	}
	return out, nil
}

func (a *API) logout(c *Call, _ none) (none, error) {
	c.Logout = true
	return none{}, a.Access.Logout(c, c.Who)
}
