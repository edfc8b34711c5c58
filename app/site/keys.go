package site

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/better-compute/bcd/app"
)

// siteKeySize is in bytes. The site key makes boot tokens, session secrets and phone-home addresses, and signs commands.
const siteKeySize = 32

// loadKey reads a secret of random bytes, making it at the first start. A file that others may read is refused: what it
// protects must be taken as known.
func loadKey(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading key %s: %w", name, err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, app.Errorf(app.InvalidConfig, "key-readable", "%s may be read by other accounts", path).
			Do("chmod 600 it, and replace it if another account could have read it")
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading key %s: %w", name, err)
	}
	if len(key) != siteKeySize {
		return nil, app.Errorf(app.InvalidConfig, "key-damaged", "%s holds %d bytes, not %d", path, len(key), siteKeySize).Do("restore it from a backup")
	}
	return key, nil
}

func makeKey(path string) ([]byte, error) {
	key := make([]byte, siteKeySize)
	_, _ = rand.Read(key) // never fails since Go 1.24
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making key: %w", err)
	}
	_, err = f.Write(key)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("making key: %w", err)
	}
	return key, nil
}
