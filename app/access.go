package app

import (
	"context"
	"time"
)

// Role is a set of permissions (design: permission table).
type Role string

// The roles, each holding the ones before it.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// Permission is a right on a kind of thing.
type Permission string

// The permissions. "read" ones belong to every role.
const (
	PermMachinesRead   Permission = "compute:machines:read"
	PermMachinesWrite  Permission = "compute:machines:write" // enroll, verbs, power, console
	PermMachinesForce  Permission = "compute:machines:force" // forced delete
	PermImagesRead     Permission = "compute:images:read"
	PermImagesWrite    Permission = "compute:images:write"
	PermDriversRead    Permission = "compute:drivers:read"
	PermWorkflowsRead  Permission = "compute:workflows:read"
	PermWorkflowsWrite Permission = "compute:workflows:write" // retry, abort, override
	PermEventsRead     Permission = "compute:events:read"
	PermNetworkRead    Permission = "compute:network:read"
	PermNetworkWrite   Permission = "compute:network:write"
	PermProfilesRead   Permission = "compute:profiles:read"
	PermProfilesWrite  Permission = "compute:profiles:write"
	PermSecretsWrite   Permission = "compute:secrets:write"
	PermUsersRead      Permission = "compute:users:read"
	PermUsersWrite     Permission = "compute:users:write"
	PermTokensWrite    Permission = "compute:tokens:write" // one's own API tokens: every role
	PermSettingsRead   Permission = "compute:settings:read"
	PermSettingsWrite  Permission = "compute:settings:write"
	PermPluginsWrite   Permission = "compute:plugins:write"
)

// User is a person who may log in.
type User struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"` // lower-case, unique
	Role     Role      `json:"role"`
	Hash     string    `json:"-"` // argon2id, PHC string
	Disabled bool      `json:"disabled,omitempty"`
	Created  time.Time `json:"created"`
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// APIToken lets a program act for a user with a subset of the user's permissions.
type APIToken struct {
	ID          string       `json:"id"`
	UserID      string       `json:"userId"`
	Name        string       `json:"name"`
	Hash        string       `json:"-"` // hex SHA-256 of the token, which has 256 random bits
	Permissions []Permission `json:"permissions"`
	Created     time.Time    `json:"created"`
	Expires     time.Time    `json:"expires"`
	LastUsed    time.Time    `json:"lastUsed,omitzero"`
}

// Session is a browser login. ID is the hex SHA-256 of the cookie value.
type Session struct {
	ID      string    `json:"id"`
	UserID  string    `json:"userId"`
	Created time.Time `json:"created"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
}

// AccessStore keeps users, tokens and sessions.
type AccessStore interface {
	CountUsers(ctx context.Context) (int, error)
	CreateUser(ctx context.Context, u *User) error
	User(ctx context.Context, id string) (*User, error) // by id or name
	ListUsers(ctx context.Context) ([]User, error)
	UpdateUser(ctx context.Context, id string, change func(*User) error) (*User, error)
	DeleteUser(ctx context.Context, id string) error // and its sessions and tokens

	PutSession(ctx context.Context, s *Session) error
	Session(ctx context.Context, id string) (*Session, error)
	DeleteSession(ctx context.Context, id string) error
	DeleteUserSessions(ctx context.Context, userID string) error

	CreateToken(ctx context.Context, t *APIToken) error
	TokenByHash(ctx context.Context, hash string) (*APIToken, error)
	ListTokens(ctx context.Context, userID string) ([]APIToken, error)
	DeleteToken(ctx context.Context, id string) error
	TouchToken(ctx context.Context, id string, at time.Time) error
}

// SealedSecret is a secret as stored: its value is sealed by app/secret, with the name as additional data.
type SealedSecret struct {
	Name    string    `json:"name"` // secret://root/NAME
	Sealed  []byte    `json:"-"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// SecretStore keeps sealed secrets.
type SecretStore interface {
	PutSecret(ctx context.Context, s *SealedSecret) error
	Secret(ctx context.Context, name string) (*SealedSecret, error)
	ListSecrets(ctx context.Context) ([]SealedSecret, error) // without values
	DeleteSecret(ctx context.Context, name string) error
}
