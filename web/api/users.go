package api

import (
	"net/http"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
)

// UserInput is a new user.
type UserInput struct {
	Name     string   `json:"name" doc:"user name"`
	Password string   `json:"password" doc:"password" secret:"true"`
	Role     app.Role `json:"role" doc:"viewer, operator or admin"`
}

// TokenInput asks for an API token.
type TokenInput struct {
	Name        string           `json:"name" doc:"what the token is for"`
	Permissions []app.Permission `json:"permissions" doc:"permission, such as compute:machines:read"`
	ExpiresIn   app.Duration     `json:"expiresIn" doc:"life of the token, such as 720h"`
}

// NewToken is a fresh API token with its value, which is shown this once.
type NewToken struct {
	app.APIToken
	Value string `json:"value"`
}

func (a *API) userRoutes() []Route {
	return []Route{
		on(Route{ID: "users.list", Method: "GET", Path: "/api/v1/users", Permission: app.PermUsersRead, Summary: "List users.", CLI: CLI{"user", "list"}},
			func(c *Call, _ none) (List[app.User], error) { return list(a.Access.ListUsers(c)) }),
		on(Route{ID: "users.create", Method: "POST", Path: "/api/v1/users", Permission: app.PermUsersWrite, Status: http.StatusCreated, Summary: "Add a user.", CLI: CLI{"user", "add"}, Args: []string{"name"}},
			func(c *Call, in UserInput) (*app.User, error) {
				return a.Access.CreateUser(c, c.actor(), in.Name, in.Password, in.Role)
			}),
		on(Route{ID: "users.change", Method: "PATCH", Path: "/api/v1/users/{id}", Permission: app.PermUsersWrite, Summary: "Change a user's role, password or right to log in.", CLI: CLI{"user", "set"}},
			func(c *Call, in access.UserChange) (*app.User, error) {
				return a.Access.UpdateUser(c, c.actor(), c.Path["id"], in)
			}),
		on(Route{ID: "users.delete", Method: "DELETE", Path: "/api/v1/users/{id}", Permission: app.PermUsersWrite, Summary: "Delete a user with their sessions and tokens.", CLI: CLI{"user", "delete"}},
			func(c *Call, _ none) (none, error) { return none{}, a.Access.DeleteUser(c, c.actor(), c.Path["id"]) }),
		on(Route{ID: "tokens.list", Method: "GET", Path: "/api/v1/tokens", Permission: app.PermTokensWrite, Summary: "List your API tokens; administrators see all.", CLI: CLI{"token", "list"}},
			func(c *Call, _ none) (List[app.APIToken], error) { return list(a.Access.ListTokens(c, c.Who)) }),
		on(Route{ID: "tokens.create", Method: "POST", Path: "/api/v1/tokens", Permission: app.PermTokensWrite, Status: http.StatusCreated,
			Summary: "Make an API token with some of your permissions.", CLI: CLI{"token", "create"}, Args: []string{"name"}}, a.createToken),
		on(Route{ID: "tokens.delete", Method: "DELETE", Path: "/api/v1/tokens/{id}", Permission: app.PermTokensWrite, Summary: "Revoke an API token.", CLI: CLI{"token", "delete"}},
			func(c *Call, _ none) (none, error) { return none{}, a.Access.DeleteToken(c, c.Who, c.Path["id"]) }),
	}
}

func (a *API) createToken(c *Call, in TokenInput) (*NewToken, error) {
	value, t, err := a.Access.CreateToken(c, c.Who, in.Name, in.Permissions, time.Duration(in.ExpiresIn))
	if err != nil {
		return nil, err
	}
	return &NewToken{APIToken: *t, Value: value}, nil
}
