package bcx

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrPin says that a plugin's file is not the pinned one. Starting it again does not help.
var ErrPin = errors.New("the plugin's file is not the pinned one")

// PinnedFile is the file whose SHA-256 pins a command: the program, or the script when the program is node, nodejs or bun.
// Options of the interpreter must be written --name=value. dir is the working directory of the command, "" the current.
func PinnedFile(command []string, dir string) (string, error) {
	if len(command) == 0 || command[0] == "" {
		return "", errors.New("the command of the plugin is empty")
	}
	program, args := command[0], command[1:]
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	if !slices.Contains([]string{"node", "nodejs", "bun"}, name) {
		return findProgram(program, dir)
	}
	if name == "bun" && len(args) > 0 && args[0] == "run" {
		args = args[1:]
	}
	i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if i < 0 {
		return "", fmt.Errorf("the command names no script for %s", name)
	}
	return within(dir, args[i]), nil
}

// findProgram resolves a program as a shell does: a name in PATH, a path against dir.
func findProgram(program, dir string) (string, error) {
	if strings.ContainsRune(program, filepath.Separator) {
		return within(dir, program), nil
	}
	found, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("finding the plugin: %w", err)
	}
	return found, nil
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// SHA256File is the lower-case hex digest of a file.
func SHA256File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hashing the plugin: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hashing the plugin: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkPin compares the pinned file of a command with its pin.
func checkPin(command []string, dir, pin string) error {
	path, err := PinnedFile(command, dir)
	if err != nil {
		return err
	}
	sum, err := SHA256File(path)
	if err != nil {
		return err
	}
	if !strings.EqualFold(sum, pin) {
		return fmt.Errorf("%w: the SHA-256 of %s is %s, pinned is %s", ErrPin, path, sum, clean(pin, 64))
	}
	return nil
}
