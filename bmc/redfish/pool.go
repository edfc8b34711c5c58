package redfish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// denialTime is how long a login that a BMC refused is not tried again. iDRACs block an address after three to five
// failures within a minute.
const denialTime = 30 * time.Second

// Longest times for one operation, beside the caller's own deadline.
const (
	readLimit  = 2 * time.Minute
	writeLimit = 5 * time.Minute
)

// use runs f with the BMC's session for at most limit, and keeps the session for a while after. When the BMC no longer
// takes the login, the session is dropped at once.
func (o *operations) use(ctx *driver.Context, limit time.Duration, f func(*driver.Context, *conn) error) error {
	user, password, err := credentials(ctx)
	if err != nil {
		return err
	}
	key := connKey(o.target, o.pin, user, password)
	c, err := o.acquire(key, user, password, o)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = f(ctx.With(bounded), c)
	o.release(key, c, err)
	return err
}

func connKey(t target, pin, user, password string) string {
	sum := sha256.Sum256([]byte(user + "\x00" + password))
	return t.origin + t.system + " " + pin + " " + hex.EncodeToString(sum[:])
}

func (d *Driver) acquire(key, user, password string, o *operations) (*conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, driver.Errorf(driver.CodeUnavailable, "the Redfish driver is stopping").Again()
	}
	if at, ok := d.denied[key]; ok && d.now().Sub(at) < denialTime {
		return nil, driver.Errorf(driver.CodeAuthFailed, "the BMC refused the user name or password less than %s ago, and is not asked again so "+
			"soon: BMCs lock out who fails too often", denialTime)
	}
	c := d.conns[key]
	if c == nil || c.dead {
		c = o.newConn(user, password, false)
		d.conns[key] = c
		d.live.Add(1)
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	c.users++
	return c, nil
}

// release gives a connection back. The last user starts its idle time, or ends it when the driver is closed or the
// connection of no more use.
func (d *Driver) release(key string, c *conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.users--
	if err != nil {
		switch driver.AsError(err).Code {
		case driver.CodeAuthFailed:
			c.dead = true
			d.deny(key)
		case driver.CodePinMismatch, driver.CodeUntrusted:
			c.dead = true // one that is unreachable keeps its session, which may still hold when it is back
		}
	}
	if c.users > 0 {
		return
	}
	if c.dead || d.closed {
		d.drop(key, c)
		return
	}
	c.idle = time.AfterFunc(d.idleTimeout, func() { d.expire(key, c) })
}

// deny remembers a refused login, and forgets the older ones.
func (d *Driver) deny(key string) {
	now := d.now()
	maps.DeleteFunc(d.denied, func(_ string, at time.Time) bool { return now.Sub(at) >= denialTime })
	d.denied[key] = now
}

// expire ends an idle connection.
func (d *Driver) expire(key string, c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.users == 0 {
		d.drop(key, c)
	}
}

// drop forgets a connection and deletes its session in the background. mu is held and nobody uses the connection.
func (d *Driver) drop(key string, c *conn) {
	if c.dropped {
		return
	}
	c.dropped = true
	if c.idle != nil {
		c.idle.Stop()
	}
	if d.conns[key] == c {
		delete(d.conns, key)
	}
	go func() {
		defer d.live.Done()
		c.logout()
	}()
}

// Forget drops what is kept for a BMC address, so that no traffic goes there any more once its calls have ended.
func (d *Driver) Forget(address string) {
	t, err := parseAddress(address)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, c := range d.conns {
		if c.target.origin != t.origin {
			continue
		}
		if c.dead = true; c.users == 0 {
			d.drop(key, c)
		}
	}
}

// Close refuses new calls, waits for those running, deletes all sessions and waits for that, at most until ctx ends. What
// is not done by then goes on in the background.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	for key, c := range d.conns {
		if c.users == 0 {
			d.drop(key, c)
		}
	}
	d.mu.Unlock()
	done := make(chan struct{})
	go func() { d.live.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
