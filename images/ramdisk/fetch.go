package ramdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Debian's metapackages: what they depend on is the newest kernel of the release. The version floats; the manifest
// records what it was.
const (
	GenericKernel = "linux-image-amd64"       // for Server
	CloudKernel   = "linux-image-cloud-amd64" // for Lab
)

// packageName is what Debian Policy 5.6.1 allows; it also keeps an option from being passed to apt.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// kernelDepend finds the kernel in a metapackage's Depends field.
var kernelDepend = regexp.MustCompile(`(?:^|[\s,])(linux-image-[0-9][a-z0-9+.-]*)`)

// candidate is the version of a package that apt would install.
type candidate struct {
	name, version, depends string
	sha256                 string // hex
}

// FetchDeb downloads a package of this machine's Debian sources into dir, unless the same bytes are there already, and
// gives its path. A kernel metapackage stands for the kernel it depends on. It needs apt, not root, and no network when
// the file is there.
func FetchDeb(ctx context.Context, name, dir string) (string, error) {
	if !packageName.MatchString(name) {
		return "", app.Invalid("package", "%q is not a Debian package name", name)
	}
	c, err := lookUp(ctx, name)
	if err != nil {
		return "", err
	}
	if m := kernelDepend.FindStringSubmatch(c.depends); m != nil && strings.HasPrefix(name, "linux-image-") {
		if c, err = lookUp(ctx, m[1]); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the package directory: %w", err)
	}
	// apt writes an epoch's colon as %3a.
	p := filepath.Join(dir, c.name+"_"+strings.ReplaceAll(c.version, ":", "%3a")+"_amd64.deb")
	if i, err := describePath(c.name, p); err == nil && i.SHA256 == c.sha256 {
		return p, nil
	}
	return p, download(ctx, c, dir, p)
}

// lookUp asks apt for a package's candidate.
func lookUp(ctx context.Context, name string) (candidate, error) {
	out, err := run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return candidate{}, app.Errorf(app.Unsupported, "no-apt", "packages cannot be downloaded on this system: %w", err).
				Do("download the kernel package elsewhere and give it: --kernel-deb")
		}
		return candidate{}, app.Errorf(app.NotFound, "package-not-found", "apt knows no package %s: %w", name, err).
			Do("refresh the package lists with apt-get update, or give the package: --kernel-deb")
	}
	c := parseShow(out)
	if c.name != name || c.version == "" || len(c.sha256) != 64 {
		return candidate{}, app.Errorf(app.NotFound, "package-not-found", "apt has no downloadable version of %s", name).
			Do("refresh the package lists with apt-get update, or give the package: --kernel-deb")
	}
	return c, nil
}

// parseShow reads the first paragraph that apt-cache show printed.
func parseShow(out string) candidate {
	var c candidate
	for line := range strings.Lines(out) {
		if strings.TrimSpace(line) == "" {
			break
		}
		k, v, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch k {
		case "Package":
			c.name = v
		case "Version":
			c.version = v
		case "Depends":
			c.depends = v
		case "SHA256":
			c.sha256 = v
		}
	}
	return c
}

// download fetches into a directory of its own, checks the digest that apt's signed lists give, and moves the file.
func download(ctx context.Context, c candidate, dir, to string) error {
	tmp, err := os.MkdirTemp(dir, ".fetch-*")
	if err != nil {
		return fmt.Errorf("making a download directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	// As root, apt would drop to its own user, which may not write here.
	if _, err := run(ctx, tmp, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", c.name+"="+c.version); err != nil {
		return app.Errorf(app.Unavailable, "package-download", "apt-get could not download %s %s: %w", c.name, c.version, err).
			Do("check the network and apt's sources, run apt-get update, or give the package: --kernel-deb").Retryable()
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("apt-get download of %s left %d files", c.name, len(found))
	}
	i, err := describePath(c.name, found[0])
	if err != nil {
		return err
	}
	if i.SHA256 != c.sha256 {
		return app.Errorf(app.Unavailable, "package-digest", "the download of %s has SHA-256 %s, the package list says %s", c.name, i.SHA256, c.sha256).
			Do("run apt-get update and try again").Retryable()
	}
	if err := os.Rename(found[0], to); err != nil {
		return fmt.Errorf("keeping the package: %w", err)
	}
	return nil
}

// run executes a program and gives what it printed; its complaint becomes part of the error.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, firstLine(stderr.String()))
	}
	return stdout.String(), nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}
