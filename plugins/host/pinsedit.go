package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Add copies a file into the plugins directory as a plugin and pins it, or replaces the plugin of that name. The running
// host takes it up when it reads the pins again. It gives the pin.
func Add(ctx context.Context, dir, name, file string) (Pin, error) {
	if err := CheckName(name); err != nil {
		return Pin{}, err
	}
	if err := makeDir(dir); err != nil {
		return Pin{}, fmt.Errorf("making the plugins directory: %w", err)
	}
	if err := checkDir(dir); err != nil {
		return Pin{}, err
	}
	src, err := os.Open(file)
	if err != nil {
		return Pin{}, app.Invalid("file", "cannot be read: %v", err)
	}
	defer src.Close()
	if st, err := src.Stat(); err != nil || !st.Mode().IsRegular() {
		return Pin{}, app.Invalid("file", "is no plain file")
	}
	if err := replace(filepath.Join(dir, name), src, 0o755); err != nil {
		return Pin{}, err
	}
	return Repin(ctx, dir, name)
}

// makeDir makes the plugins directory, if there is none, one that every plugin's uid may read whatever the umask.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755))
}

// Repin pins the file that stands in the directory under a name as it is now.
func Repin(ctx context.Context, dir, name string) (Pin, error) {
	if err := CheckName(name); err != nil {
		return Pin{}, err
	}
	if err := checkDir(dir); err != nil {
		return Pin{}, err
	}
	exe, sum, err := openHashed(ctx, filepath.Join(dir, name))
	if err != nil {
		return Pin{}, err
	}
	p := Pin{name, sum}
	return p, errors.Join(exe.Close(), edit(dir, name, sum+"  "+name))
}

// Remove takes a plugin's pin and then its file away.
func Remove(dir, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	if err := edit(dir, name, ""); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the plugin: %w", err)
	}
	return nil
}

// edit writes the pins file anew with a name's lines replaced by line, or taken out. Every other line stays as it is.
func edit(dir, name, line string) error {
	path := filepath.Join(dir, PinsName)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the pins: %w", err)
	}
	var out []string
	found := false
	for l := range strings.Lines(string(old)) {
		l = strings.TrimRight(l, "\r\n")
		if p, err := parsePin(strings.TrimSpace(l)); err != nil || p.Name != name {
			out = append(out, l)
			continue
		}
		if line != "" && !found {
			out = append(out, line)
		}
		found = true
	}
	switch {
	case !found && line == "":
		return app.Missing("plugin", name)
	case !found:
		out = append(out, line)
	}
	text := strings.Join(out, "\n")
	if text != "" {
		text += "\n"
	}
	return replace(path, bytes.NewReader([]byte(text)), 0o644)
}

// replace writes a file beside its place and moves it there, so that a reader finds the old one or the new one, whole.
func replace(path string, src io.Reader, mode os.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = io.Copy(tmp, src)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}
