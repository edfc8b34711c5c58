package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/better-compute/bcd/app"
)

// maxFile is the largest state file that is read back, in bytes.
const maxFile = 16 << 20

// ReadFile decodes a state file into v. It reports false and no error when there is none. A file that others may read or
// write, or that is no regular file, is refused: its content is not ours.
func ReadFile(path string, v any) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening state file: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("looking at state file %q: %w", path, err)
	}
	if !st.Mode().IsRegular() || st.Mode().Perm() != 0o600 {
		return false, app.Errorf(app.Forbidden, "state-file-open", "the state file %q has mode %v, which lets others at it", path, st.Mode()).
			Do("start the machine again: each boot makes its own state")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return false, fmt.Errorf("reading state file %q: %w", path, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("decoding state file %q: %w", path, err)
	}
	return true, nil
}

// WriteFile replaces the state file at path, mode 0600, with v as JSON. A crash leaves the old file or the new one.
func WriteFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding state file %q: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making folder of state file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return fmt.Errorf("making state file: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("writing state file %q: %w", path, err)
	}
	return nil
}
