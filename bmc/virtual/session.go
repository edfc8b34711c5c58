package virtual

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxSessions is small on purpose: BMCs refuse more, and a client that leaks sessions must notice here.
	maxSessions    = 8
	sessionTimeout = 30 * time.Minute // without use
)

// session is one login.
type session struct {
	id, token, user string
	created, used   time.Time
}

// sessions holds the live logins.
type sessions struct {
	now  func() time.Time
	mu   sync.Mutex // protects live
	live []session
}

func newSessions(now func() time.Time) *sessions { return &sessions{now: now} }

// expire drops what was not used for too long. mu is held.
func (s *sessions) expire() {
	limit := s.now().Add(-sessionTimeout)
	s.live = slices.DeleteFunc(s.live, func(e session) bool { return e.used.Before(limit) })
}

// open makes a session, or reports false when there are too many.
func (s *sessions) open(user string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if len(s.live) >= maxSessions {
		return session{}, false
	}
	e := session{id: random(8), token: random(24), user: user, created: s.now(), used: s.now()}
	s.live = append(s.live, e)
	return e, true
}

// use reports whether token belongs to a live session, and keeps it alive.
func (s *sessions) use(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for i := range s.live {
		if equal(s.live[i].token, token) {
			s.live[i].used = s.now()
			return true
		}
	}
	return false
}

// list gives the live sessions, oldest first.
func (s *sessions) list() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return slices.Clone(s.live)
}

// find gives one session by its id.
func (s *sessions) find(id string) (session, bool) {
	for _, e := range s.list() {
		if e.id == id {
			return e, true
		}
	}
	return session{}, false
}

// end drops one session by its id.
func (s *sessions) end(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.live)
	s.live = slices.DeleteFunc(s.live, func(e session) bool { return e.id == id })
	return len(s.live) < before
}

// random gives n random octets in hex.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Sessions counts the BMC's live sessions: a client under test must not leak them.
func (m *Machine) Sessions() int { return len(m.sessions.list()) }

// rightPassword compares a login with the BMC's only account, in constant time.
func (m *Machine) rightPassword(user, password string) bool {
	u, p := equal(user, m.cfg.Username), equal(password, m.Password())
	return u && p
}

// authenticated reports whether a request carries a live session's token or the right password.
func (m *Machine) authenticated(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		return m.sessions.use(token)
	}
	user, password, ok := r.BasicAuth()
	return ok && m.rightPassword(user, password)
}

// open reports whether a request needs no login: the version, the root, and the way to log in (DSP0266).
func open(r *http.Request) bool {
	switch p := strings.TrimSuffix(r.URL.Path, "/"); p {
	case "/redfish", root, root + "/odata", root + "/$metadata":
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	case sessionsPath, sessionsPath + "/Members":
		return r.Method == http.MethodPost
	}
	return false
}
