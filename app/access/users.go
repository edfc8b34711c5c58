package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// UserChange is what an administrator may change of a user; nil fields stay.
type UserChange struct {
	Role     *app.Role `json:"role,omitempty" doc:"viewer, operator or admin"`
	Disabled *bool     `json:"disabled,omitempty" doc:"may not log in"`
	Password *string   `json:"password,omitempty" doc:"password" secret:"true"`
}

// CreateUser adds a user.
func (s *Service) CreateUser(ctx context.Context, actor, name, password string, role app.Role) (*app.User, error) {
	if !userRE.MatchString(name) {
		return nil, app.Invalid("name", "is not a valid user name").
			Do("use 1 to 32 lower-case letters, digits, dots, hyphens and underscores, starting with a letter")
	}
	if PermissionsOf(role) == nil {
		return nil, app.Invalid("role", "is no role").Do("use viewer, operator or admin")
	}
	if err := ValidPassword(name, password); err != nil {
		return nil, err
	}
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		return nil, err
	}
	u := &app.User{ID: app.NewID("u"), Name: name, Role: role, Hash: hash, Created: s.now().UTC()}
	if err := s.store.CreateUser(ctx, u); err != nil {
		return nil, err
	}
	s.tell(ctx, "user.created", "info", actor, "created user %s with the role %s", name, role)
	return u, nil
}

// ListUsers lists all users.
func (s *Service) ListUsers(ctx context.Context) ([]app.User, error) { return s.store.ListUsers(ctx) }

// UpdateUser changes role, password or whether a user may log in. A new password or a disabled user ends the user's
// sessions. The last administrator stays one.
func (s *Service) UpdateUser(ctx context.Context, actor, id string, c UserChange) (*app.User, error) {
	s.admins.Lock()
	defer s.admins.Unlock()
	u, err := s.store.User(ctx, id)
	if err != nil {
		return nil, err
	}
	if c.Role != nil && PermissionsOf(*c.Role) == nil {
		return nil, app.Invalid("role", "is no role").Do("use viewer, operator or admin")
	}
	demoted := c.Role != nil && *c.Role != app.RoleAdmin || c.Disabled != nil && *c.Disabled
	if demoted {
		if err := s.keepsAdmin(ctx, u); err != nil {
			return nil, err
		}
	}
	hash := ""
	if c.Password != nil {
		if hash, err = s.newHash(ctx, u.Name, *c.Password); err != nil {
			return nil, err
		}
	}
	u, err = s.store.UpdateUser(ctx, u.ID, func(u *app.User) error { c.apply(u, hash); return nil })
	if err != nil {
		return nil, err
	}
	if c.Password != nil || u.Disabled {
		if err := s.store.DeleteUserSessions(ctx, u.ID); err != nil {
			return nil, fmt.Errorf("ending sessions of %s: %w", u.Name, err)
		}
	}
	s.tell(ctx, "user.changed", "info", actor, "changed %s of user %s", c.what(), u.Name)
	return u, nil
}

func (c UserChange) apply(u *app.User, hash string) {
	if c.Role != nil {
		u.Role = *c.Role
	}
	if c.Disabled != nil {
		u.Disabled = *c.Disabled
	}
	if hash != "" {
		u.Hash = hash
	}
}

func (c UserChange) what() string {
	var out []string
	if c.Role != nil {
		out = append(out, "the role")
	}
	if c.Disabled != nil {
		out = append(out, "the right to log in")
	}
	if c.Password != nil {
		out = append(out, "the password")
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

func (s *Service) newHash(ctx context.Context, name, password string) (string, error) {
	if err := ValidPassword(name, password); err != nil {
		return "", err
	}
	return s.hasher.hash(ctx, password)
}

// ChangePassword lets a user set their own password, proving the old one. Their other sessions end.
func (s *Service) ChangePassword(ctx context.Context, who *Identity, old, fresh, remote string) (*Login, error) {
	if who.Token != nil {
		return nil, app.Errorf(app.Forbidden, "session-needed", "an API token cannot change a password").Do("log in with a browser")
	}
	if err := s.limit.begin(who.User.Name, remote); err != nil {
		return nil, err
	}
	u, err := s.store.User(ctx, who.User.ID)
	if err != nil {
		return nil, err
	}
	if ok, err := s.hasher.verify(ctx, u.Hash, old); err != nil {
		return nil, err
	} else if !ok {
		return nil, app.Errorf(app.Forbidden, "password-wrong", "the present password is wrong").At("old").Do("type the password you logged in with")
	}
	s.limit.forget(who.User.Name, remote)
	if u, err = s.UpdateUser(ctx, who.Actor(), u.ID, UserChange{Password: &fresh}); err != nil {
		if e, ok := app.AsError(err); ok && e.Field == "password" {
			return nil, e.At("new")
		}
		return nil, err
	}
	return s.begin(ctx, u)
}

// ResetPassword gives a user a fresh random password, for the owner of the appliance's root account.
func (s *Service) ResetPassword(ctx context.Context, name string) (string, error) {
	fresh, on := secretText()[:24], false
	_, err := s.UpdateUser(ctx, "system", strings.ToLower(name), UserChange{Password: &fresh, Disabled: &on})
	return fresh, err
}

// DeleteUser removes a user with their sessions and tokens.
func (s *Service) DeleteUser(ctx context.Context, actor, id string) error {
	s.admins.Lock()
	defer s.admins.Unlock()
	u, err := s.store.User(ctx, id)
	if err != nil {
		return err
	}
	if err := s.keepsAdmin(ctx, u); err != nil {
		return err
	}
	if err := s.store.DeleteUser(ctx, u.ID); err != nil {
		return err
	}
	s.tell(ctx, "user.deleted", "info", actor, "deleted user %s", u.Name)
	return nil
}

// keepsAdmin refuses when u is the only administrator who can log in. admins is held.
func (s *Service) keepsAdmin(ctx context.Context, u *app.User) error {
	all, err := s.store.ListUsers(ctx)
	if err != nil {
		return err
	}
	others := slices.ContainsFunc(all, func(o app.User) bool { return o.ID != u.ID && o.Role == app.RoleAdmin && !o.Disabled })
	if others || u.Role != app.RoleAdmin || u.Disabled {
		return nil
	}
	return app.Errorf(app.Conflict, "last-admin", "%s is the only administrator", u.Name).Do("make another user an administrator first")
}

// Limits of an API token.
const (
	MaxTokenLife = 366 * 24 * time.Hour
	MaxTokens    = 50 // per user
)

// CreateToken makes an API token for who's user and gives its value, which is shown once.
func (s *Service) CreateToken(ctx context.Context, who *Identity, name string, perms []app.Permission, life time.Duration) (string, *app.APIToken, error) {
	if err := app.ValidName("name", name); err != nil {
		return "", nil, err
	}
	if life <= 0 || life > MaxTokenLife {
		return "", nil, app.Invalid("expiresIn", "is out of range").Do("use more than 0 and at most %d days", int(MaxTokenLife/(24*time.Hour)))
	}
	if len(perms) == 0 {
		return "", nil, app.Invalid("permissions", "is empty").Do("name at least one permission")
	}
	for _, p := range perms {
		if !who.Can(p) {
			return "", nil, app.Errorf(app.Forbidden, "permission-missing", "you cannot give away a permission that you do not hold").At("permissions")
		}
	}
	if who.Token != nil && s.now().Add(life).After(who.Token.Expires) {
		return "", nil, app.Invalid("expiresIn", "ends after the token that asks for it").Do("log in with a browser, or ask for a shorter life")
	}
	have, err := s.store.ListTokens(ctx, who.User.ID)
	if err != nil {
		return "", nil, err
	}
	if len(have) >= MaxTokens {
		return "", nil, app.Errorf(app.Conflict, "too-many-tokens", "you have %d API tokens already", len(have)).Do("delete one that is no longer used")
	}
	value, now := TokenPrefix+secretText(), s.now().UTC()
	t := &app.APIToken{ID: app.NewID("t"), UserID: who.User.ID, Name: name, Hash: digest(value), Permissions: slices.Compact(slices.Sorted(slices.Values(perms))), Created: now, Expires: now.Add(life)}
	if err := s.store.CreateToken(ctx, t); err != nil {
		return "", nil, err
	}
	s.tell(ctx, "token.created", "info", who.Actor(), "created API token %s", name)
	return value, t, nil
}

// ListTokens lists who's own tokens, or for someone who manages users those of everybody.
func (s *Service) ListTokens(ctx context.Context, who *Identity) ([]app.APIToken, error) {
	if !who.Can(app.PermUsersWrite) {
		return s.store.ListTokens(ctx, who.User.ID)
	}
	users, err := s.store.ListUsers(ctx)
	if err != nil {
		return nil, err
	}
	var out []app.APIToken
	for _, u := range users {
		t, err := s.store.ListTokens(ctx, u.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, t...)
	}
	return out, nil
}

// DeleteToken revokes a token that who may see.
func (s *Service) DeleteToken(ctx context.Context, who *Identity, id string) error {
	mine, err := s.ListTokens(ctx, who)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mine, func(t app.APIToken) bool { return t.ID == id })
	if i < 0 {
		return app.Missing("token", id)
	}
	if err := s.store.DeleteToken(ctx, id); err != nil {
		return err
	}
	s.tell(ctx, "token.deleted", "info", who.Actor(), "deleted API token %s", mine[i].Name)
	return nil
}
