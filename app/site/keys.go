package site

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

// settingKeys holds the fingerprint of the keys that the database was written with.
const settingKeys = "site.keys-sha256"

// vital are the keys without which a database is worth little: sealed secrets, boot tokens and signatures depend on them. The
// TLS keys may be replaced.
var vital = []string{"site.key", "secrets.key"}

// checkKeys refuses to start with keys that are not those of the database. Were new ones made instead, every sealed secret
// would be lost without a word.
func checkKeys(ctx context.Context, settings app.SettingStore, dir string) error {
	want, err := settings.Setting(ctx, settingKeys)
	if err != nil || want == "" {
		return err
	}
	got, err := fingerprint(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return app.Errorf(app.InvalidConfig, "keys-missing", "%s lacks a key that the database was written with: %w", dir, err).
			Do("put the keys back, or restore database and keys from one backup")
	case err != nil:
		return err
	case got != want:
		return app.Errorf(app.InvalidConfig, "keys-differ", "the keys in %s are not those that the database was written with", dir).
			Do("put the keys back, or restore database and keys from one backup")
	}
	return nil
}

// rememberKeys writes down which keys the database is written with, once.
func rememberKeys(ctx context.Context, settings app.SettingStore, dir string) error {
	if known, err := settings.Setting(ctx, settingKeys); err != nil || known != "" {
		return err
	}
	sum, err := fingerprint(dir)
	if err != nil {
		return err
	}
	return settings.SetSetting(ctx, settingKeys, sum)
}

func fingerprint(dir string) (string, error) {
	h := sha256.New()
	for _, name := range vital {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("reading key %s: %w", name, err)
		}
		fmt.Fprintf(h, "bcd key %s %d\x00", name, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
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
