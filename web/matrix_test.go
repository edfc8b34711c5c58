package web_test

import (
	"slices"

	"github.com/better-compute/bcd/app"
)

// matrix is the table of the design, written a second time.
var matrix = map[app.Role][]app.Permission{
	app.RoleViewer: {"compute:machines:read", "compute:images:read", "compute:drivers:read", "compute:workflows:read", "compute:events:read",
		"compute:network:read", "compute:profiles:read", "compute:users:read", "compute:settings:read", "compute:tokens:write"},
	app.RoleOperator: {"compute:machines:write", "compute:images:write", "compute:workflows:write"},
	app.RoleAdmin: {"compute:machines:force", "compute:network:write", "compute:profiles:write", "compute:secrets:write", "compute:users:write",
		"compute:settings:write", "compute:plugins:write"},
}

func holds(r app.Role, p app.Permission) bool {
	switch {
	case slices.Contains(matrix[r], p):
		return true
	case r == app.RoleAdmin:
		return holds(app.RoleOperator, p)
	case r == app.RoleOperator:
		return holds(app.RoleViewer, p)
	}
	return false
}
