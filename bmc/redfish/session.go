package redfish

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	getTries = 3
	getPause = 3 * time.Second
)

// conn is a client with a login: the one session this process holds on a BMC.
type conn struct {
	*client
	user, password string
	wait           func(context.Context, time.Duration) error

	mu       sync.Mutex // held over a login, so that there is one
	token    string
	location string // of the session, to delete it
	basic    bool   // the session service is absent, full or broken
	root     *document
	system   string   // path of the machine's system, once found
	form     string   // of the boot override that the BMC took last
	kept     []string // "form enabled": boot overrides that it was seen to keep
	missed   []string

	// The driver's mu protects these.
	idle    *time.Timer
	users   int
	dead    bool // not to be used for new calls
	dropped bool // its logout has begun
}

// send does one request with authentication. An expired session is replaced once.
func (c *conn) send(ctx context.Context, method, link string, body any, header http.Header) (*response, error) {
	token, err := c.login(ctx, "")
	if err != nil {
		return nil, err
	}
	r, err := c.do(ctx, method, link, body, c.authorize(header, token))
	if err != nil || r.status != http.StatusUnauthorized || token == "" {
		return r, err
	}
	if token, err = c.login(ctx, token); err != nil {
		return nil, err
	}
	return c.do(ctx, method, link, body, c.authorize(header, token))
}

func (c *conn) authorize(header http.Header, token string) http.Header {
	h := header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if token != "" {
		h.Set("X-Auth-Token", token)
		return h
	}
	req := http.Request{Header: h}
	req.SetBasicAuth(c.user, c.password)
	return h
}

// login gives the token of the session, making one when there is none or when the BMC no longer takes the stale one.
// "" means basic authentication. It runs to its end even when ctx ends, so that a session that the BMC made is known.
func (c *conn) login(ctx context.Context, stale string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.basic || (c.token != "" && c.token != stale) {
		return c.token, nil
	}
	if err := ctx.Err(); err != nil {
		return "", driver.AsError(err)
	}
	if err := c.loadRoot(ctx); err != nil {
		return "", err
	}
	old := c.location
	c.token, c.location = "", ""
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.limits.login)
	defer cancel()
	if err := c.openSession(bounded); err != nil {
		c.remove(bounded, old, stale)
		return "", err
	}
	c.remove(bounded, old, c.token) // a BMC may refuse a session and keep it all the same
	return c.token, nil
}

// openSession posts to the session collection. Any answer but a token and a plain refusal of the credentials means basic
// authentication from here on: services without sessions, full ones and broken ones all accept it.
func (c *conn) openSession(ctx context.Context) error {
	link := c.root.link("Links", "Sessions") // older iDRACs keep it outside SessionService
	if link == "" {
		c.basic = true
		return nil
	}
	credentials := map[string]string{"UserName": c.user, "Password": c.password}
	r, err := c.do(ctx, http.MethodPost, link, credentials, nil)
	if err != nil {
		return err
	}
	c.token, c.location = sessionOf(r)
	f := parseFault(r)
	switch {
	case r.status < 300 && c.token != "":
		return nil
	case r.status < 300:
		c.basic = true
		c.remove(ctx, c.location, "")
		c.location = ""
		return nil
	case f.is("PasswordChangeRequired"), r.status == http.StatusUnauthorized && !f.sessionLimit():
		return f.err("logging in")
	case r.status == http.StatusBadRequest && f.says("credential", "authentication", "username or password"):
		return driver.Errorf(driver.CodeAuthFailed, "the BMC refuses the user name or password: %s", f.text())
	}
	c.basic = true
	return nil
}

// sessionOf takes a new session's token and path out of the answer. Only the path of its address counts: BMCs name
// themselves there by names and ports that do not reach them from here.
func sessionOf(r *response) (token, path string) {
	location := r.header.Get("Location")
	if location == "" {
		if d, err := parseDocument(r); err == nil {
			location = d.text("@odata.id")
		}
	}
	if u, err := url.Parse(location); err == nil {
		path = u.EscapedPath()
	}
	return r.header.Get("X-Auth-Token"), path
}

// remove deletes a session, "" none, by a token or basic authentication. Its failure is nobody's: the BMC's own time-out
// takes what is left.
func (c *conn) remove(ctx context.Context, path, token string) {
	if path != "" {
		_, _ = c.do(ctx, http.MethodDelete, path, nil, c.authorize(nil, token))
	}
}

// logout deletes the session, if there is one, and the connections. A later use logs in again.
func (c *conn) logout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.limits.logout)
	defer cancel()
	c.remove(ctx, c.location, c.token)
	c.token, c.location, c.basic = "", "", false
	c.close()
}

// loadRoot reads the service root once. It needs no login.
func (c *conn) loadRoot(ctx context.Context) error {
	if c.root != nil {
		return nil
	}
	r, err := c.do(ctx, http.MethodGet, "/redfish/v1/", nil, nil)
	if err != nil {
		return err
	}
	if r.status == http.StatusNotFound { // a service that knows the path without the slash only
		if r, err = c.do(ctx, http.MethodGet, "/redfish/v1", nil, nil); err != nil {
			return err
		}
	}
	if r.status == http.StatusNotFound {
		return driver.Errorf(driver.CodeUnsupported, "%s serves no Redfish; enable it, or use the IPMI driver", c.target.origin)
	}
	if r.status == http.StatusUnauthorized {
		c.root, c.basic = plainRoot(), true
		return nil
	}
	if r.status >= 300 {
		return parseFault(r).err("reading its service root")
	}
	root, err := parseDocument(r)
	if err != nil && quirkNullRoot(r) {
		root, err = plainRoot(), nil
	}
	if err != nil {
		return err
	}
	c.root = root
	return nil
}

// get reads one resource. A BMC that is busy for a moment (iDRAC's SYS518 while it refreshes its data) is asked again.
func (c *conn) get(ctx context.Context, link string) (*document, error) {
	for tries := 1; ; tries++ {
		r, err := c.send(ctx, http.MethodGet, link, nil, nil)
		if err != nil {
			return nil, err
		}
		if r.status < 300 {
			return parseDocument(r)
		}
		f := parseFault(r)
		if !f.passing() || tries == getTries {
			return nil, f.err("reading " + clip(link, 80))
		}
		if err := c.wait(ctx, getPause); err != nil {
			return nil, driver.AsError(err)
		}
	}
}

// find reads a resource that may not be there: nil without an error for every refusal but one of the login. What is there
// and cannot be read is noted for the inventory's warnings.
func (c *conn) find(ctx context.Context, link string) (*document, error) {
	if link == "" {
		return nil, nil
	}
	d, err := c.get(ctx, link)
	if err == nil {
		return d, nil
	}
	switch e := driver.AsError(err); e.Code {
	case codeNotFound, driver.CodeUnsupported, "licence-missing":
	case driver.CodeBMCError, driver.CodeBusy, "access-denied":
		c.miss(e.Message)
	default:
		return nil, err
	}
	return nil, nil //nolint:nilerr // not there is an answer
}

// maxMissed bounds what is remembered of unreadable resources.
const maxMissed = 8

func (c *conn) miss(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.missed) < maxMissed && !slices.Contains(c.missed, text) {
		c.missed = append(c.missed, text)
	}
}

// takeMissed gives what find noted since it was last asked.
func (c *conn) takeMissed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.missed
	c.missed = nil
	return out
}

// members reads the links of a collection, following its pages, at most limit of them.
func (c *conn) members(ctx context.Context, link string, limit int) ([]string, error) {
	var out []string
	seen, pages := map[string]bool{}, 0
	for link != "" && !seen[link] && len(out) < limit && pages < 16 {
		pages++
		seen[link] = true
		d, err := c.find(ctx, link)
		if err != nil || d == nil {
			return out, err
		}
		for _, m := range d.links("Members") {
			if !seen["member "+m] && len(out) < limit {
				seen["member "+m] = true
				out = append(out, m)
			}
		}
		link = d.text("Members@odata.nextLink")
	}
	return out, nil
}

// plainRoot is a service root with nothing but the paths that every service has.
func plainRoot() *document {
	link := func(p string) map[string]any { return map[string]any{"@odata.id": "/redfish/v1/" + p} }
	return &document{body: map[string]any{"Systems": link("Systems"), "Managers": link("Managers")}}
}
