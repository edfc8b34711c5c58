package api

import (
	"context"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
)

// SecretInput is a secret's value: a string, or an object of strings.
type SecretInput struct {
	Value secret.Value `json:"value" doc:"the secret: a text, or an object of texts such as username and password" secret:"true"`
}

func (a *API) secretRoutes() []Route {
	return []Route{
		on(Route{ID: "secrets.list", Method: "GET", Path: "/api/v1/secrets", Permission: app.PermSecretsWrite, Summary: "List the names of stored secrets; values never leave.", CLI: CLI{"secret", "list"}},
			func(c *Call, _ none) (List[app.SealedSecret], error) { return list(a.Secrets.List(c)) }),
		on(Route{ID: "secrets.put", Method: "PUT", Path: "/api/v1/secrets/{name}", Permission: app.PermSecretsWrite, Summary: "Store a secret, replacing its value.", CLI: CLI{"secret", "set"}},
			func(c *Call, in SecretInput) (none, error) {
				return none{}, a.noted(c, "secret", "stored", func(ctx context.Context, name string) error { return a.Secrets.Put(ctx, name, in.Value) })
			}),
		on(Route{ID: "secrets.delete", Method: "DELETE", Path: "/api/v1/secrets/{name}", Permission: app.PermSecretsWrite, Summary: "Delete a secret that no machine uses.", CLI: CLI{"secret", "delete"}},
			func(c *Call, _ none) (none, error) { return none{}, a.noted(c, "secret", "deleted", a.deleteSecret) }),
	}
}

// deleteSecret refuses while a machine's BMC is reached with the secret.
func (a *API) deleteSecret(ctx context.Context, name string) error {
	after := ""
	for {
		page, err := a.Machines.ListMachines(ctx, app.MachineFilter{After: after, Limit: 1000})
		if err != nil {
			return err
		}
		for _, m := range page.Items {
			if m.BMC != nil && m.BMC.CredentialRef == secret.Ref(name) {
				return app.Errorf(app.Conflict, "secret-in-use", "%s reaches its BMC with this secret", m.Name).Do("give the machine another one, or delete it, first")
			}
			for kind, b := range m.Drivers {
				if strings.Contains(string(b.Config), `"`+secret.Ref(name)+`"`) {
					return app.Errorf(app.Conflict, "secret-in-use", "the driver for %s of %s is given this secret", kind, m.Name).Do("bind it with another one first")
				}
			}
		}
		if after = page.Next; after == "" {
			return a.Secrets.Delete(ctx, name)
		}
	}
}
