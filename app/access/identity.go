package access

import (
	"slices"

	"github.com/better-compute/bcd/app"
)

var viewer = []app.Permission{
	app.PermMachinesRead, app.PermImagesRead, app.PermDriversRead, app.PermWorkflowsRead, app.PermEventsRead,
	app.PermNetworkRead, app.PermProfilesRead, app.PermUsersRead, app.PermSettingsRead, app.PermTokensWrite,
}

var operator = append(slices.Clone(viewer), app.PermMachinesWrite, app.PermImagesWrite, app.PermWorkflowsWrite)

var admin = append(slices.Clone(operator), app.PermMachinesForce, app.PermNetworkWrite, app.PermProfilesWrite,
	app.PermSecretsWrite, app.PermUsersWrite, app.PermSettingsWrite, app.PermPluginsWrite)

// Roles lists the roles from the weakest.
func Roles() []app.Role { return []app.Role{app.RoleViewer, app.RoleOperator, app.RoleAdmin} }

// PermissionsOf lists what a role may do; an unknown role may do nothing.
func PermissionsOf(r app.Role) []app.Permission {
	switch r {
	case app.RoleViewer:
		return slices.Clone(viewer)
	case app.RoleOperator:
		return slices.Clone(operator)
	case app.RoleAdmin:
		return slices.Clone(admin)
	}
	return nil
}

// Identity is who makes a request, and what they may do now.
type Identity struct {
	User        app.User
	Permissions []app.Permission
	Token       *app.APIToken // nil for a browser session
	SessionID   string        // "" for a token
}

// Can reports whether the identity holds a permission. A nil identity holds none.
func (i *Identity) Can(p app.Permission) bool { return i != nil && slices.Contains(i.Permissions, p) }

// Actor is the name under which events and workflows remember the identity.
func (i *Identity) Actor() string {
	switch {
	case i == nil:
		return ""
	case i.Token != nil:
		return "token:" + i.Token.Name
	}
	return i.User.Name
}

// Need refuses when the permission is missing.
func (i *Identity) Need(p app.Permission) error {
	if i.Can(p) {
		return nil
	}
	return app.Errorf(app.Forbidden, "permission-missing", "this needs the permission %s, which you do not have", p).
		Do("ask an administrator for a role that holds it")
}

func intersect(have, want []app.Permission) []app.Permission {
	out := make([]app.Permission, 0, len(want))
	for _, p := range want {
		if slices.Contains(have, p) {
			out = append(out, p)
		}
	}
	return out
}
