package redfish

import (
	"context"

	"github.com/better-compute/bcd/plugins/driver"
)

const maxPassword = 128 // bytes; most BMCs take 16 to 64 and say so

// RotateCredential changes an account's password and proves it by logging in with the new one.
func (m management) RotateCredential(ctx *driver.Context, newPassword string, o driver.RotateOptions) error {
	if newPassword == "" { // delivered as a secret, which keeps it out of the arguments
		var err error
		if newPassword, err = ctx.Secret("newPassword"); err != nil {
			return driver.Errorf(driver.CodeInvalidArgs, "there is no new password")
		}
	}
	if newPassword == "" || len(newPassword) > maxPassword {
		return driver.Errorf(driver.CodeInvalidArgs, "the new password must have 1 to %d bytes", maxPassword)
	}
	var user string
	err := m.use(ctx, writeLimit, func(ctx *driver.Context, c *conn) error {
		user = firstOf(o.Username, c.user)
		account, err := c.account(ctx, user)
		if err != nil {
			return err
		}
		r, err := m.patch(ctx, c, account, map[string]any{"Password": newPassword})
		if err != nil {
			return err
		}
		if r.status >= 300 {
			return parseFault(r).err("the new password")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := m.proveLogin(ctx, user, newPassword); err != nil {
		return driver.Errorf(driver.CodeNotApplied, "the BMC accepted the new password, and a login with it fails: %s", driver.AsError(err).Message)
	}
	m.forgetUser(m.target, user)
	return nil
}

// account finds an account by its user name: the ids differ between makers.
func (c *conn) account(ctx context.Context, user string) (*document, error) {
	service, err := c.find(ctx, firstOf(c.root.link("AccountService"), "/redfish/v1/AccountService"))
	if err != nil {
		return nil, err
	}
	links, err := c.members(ctx, firstOf(service.link("Accounts"), "/redfish/v1/AccountService/Accounts"), maxChildren)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		d, err := c.find(ctx, link)
		if err != nil {
			return nil, err
		}
		if d.text("UserName") == user {
			return d, nil
		}
	}
	return nil, driver.Errorf(driver.CodeUnsupported, "the BMC shows no account %q to change", clip(user, 40))
}

// proveLogin logs in on a connection of its own and out again.
func (m management) proveLogin(ctx context.Context, user, password string) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	c := m.newConn(user, password, false)
	defer c.logout()
	_, err := c.findSystem(ctx)
	return err
}

// forgetUser ends the connections that still hold an account's old password.
func (d *Driver) forgetUser(t target, user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, c := range d.conns {
		if c.target.origin == t.origin && c.user == user {
			if c.dead = true; c.users == 0 {
				d.drop(key, c)
			}
		}
	}
}
