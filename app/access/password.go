package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/better-compute/bcd/app"
)

// Password limits in bytes. The upper one bounds the work of a hash.
const (
	MinPassword = 10
	MaxPassword = 256
)

// Params are the cost of argon2id. The default is OWASP's smallest recommended setting: a jump host is small, and logins
// are rate-limited besides.
type Params struct {
	Memory  uint32 // KiB
	Time    uint32
	Threads uint8
}

var defaultParams = Params{Memory: 19 << 10, Time: 2, Threads: 1}

const (
	saltBytes = 16
	hashBytes = 32
	hashers   = 2  // argon2 computations at the same time
	waiters   = 32 // requests waiting for one, beyond which more are refused
)

// hasher computes argon2id hashes, few at a time, so that logins cannot eat the machine's memory.
type hasher struct {
	params Params
	slots  chan struct{}
	queue  chan struct{}
	dummy  string
}

func newHasher(p Params) *hasher {
	if p == (Params{}) {
		p = defaultParams
	}
	h := &hasher{params: p, slots: make(chan struct{}, hashers), queue: make(chan struct{}, hashers+waiters)}
	h.dummy = h.phc(random(saltBytes), random(hashBytes)) // no password has it, and checking one against it costs the same
	return h
}

// enter waits for a slot; leave must be called after.
func (h *hasher) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.queue <- struct{}{}:
	default:
		return nil, app.Errorf(app.RateLimited, "login-busy", "too many logins are being checked right now").
			Do("try again in a few seconds").Retryable()
	}
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots; <-h.queue; h.giveBack() }, nil
	case <-ctx.Done():
		<-h.queue
		return nil, ctx.Err()
	}
}

func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return h.compute(password), nil
}

// giveBack returns the memory of the computations to the system when the last has ended: the collector alone would keep
// it for minutes, which is more than everything else in an idle appliance.
func (h *hasher) giveBack() {
	if len(h.queue) == 0 {
		debug.FreeOSMemory()
	}
}

func (h *hasher) compute(password string) string {
	salt := random(saltBytes)
	return h.phc(salt, argon2.IDKey([]byte(password), salt, h.params.Time, h.params.Memory, h.params.Threads, hashBytes))
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// phc spells a hash with what is needed to compute it again.
func (h *hasher) phc(salt, sum []byte) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.params.Memory, h.params.Time, h.params.Threads, b64(salt), b64(sum))
}

// verify checks a password against a PHC string; "" stands for a user who does not exist and costs the same.
func (h *hasher) verify(ctx context.Context, phc, password string) (bool, error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	known := phc != ""
	if !known {
		phc = h.dummy
	}
	p, salt, want, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	got := argon2.IDKey([]byte(password), salt, p.Time, p.Memory, p.Threads, uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1 && known, nil
}

// parsePHC reads "$argon2id$v=19$m=..,t=..,p=..$salt$hash" and refuses costs that would stop the appliance.
func parsePHC(s string) (Params, []byte, []byte, error) {
	var p Params
	var version int
	parts := strings.Split(s, "$")
	bad := fmt.Errorf("the stored password hash is not argon2id")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return p, nil, nil, bad
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return p, nil, nil, bad
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.Memory, &p.Time, &p.Threads); err != nil {
		return p, nil, nil, bad
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[4])
	sum, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(sum) < 16 || len(sum) > 64 ||
		p.Memory > 1<<20 || p.Time == 0 || p.Time > 16 || p.Threads == 0 {
		return p, nil, nil, bad
	}
	return p, salt, sum, nil
}

// ValidPassword checks a new password for a user.
func ValidPassword(name, password string) error {
	switch {
	case len(password) < MinPassword:
		return app.Invalid("password", "is too short").Do("use at least %d characters", MinPassword)
	case len(password) > MaxPassword:
		return app.Invalid("password", "is %d bytes long, the limit is %d", len(password), MaxPassword)
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		return app.Invalid("password", "is not plain text")
	case strings.EqualFold(password, name) || strings.Count(password, password[:1]) == len(password):
		return app.Invalid("password", "is too easy to guess").Do("use several unrelated words")
	}
	return nil
}
