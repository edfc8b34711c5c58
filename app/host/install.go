package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Installation says where things go. Root is "/" but for tests.
type Installation struct {
	Root   string
	Binary string // the file to install: this executable
	// PluginsDir is what the configuration names, "" for none: an uninstallation says that it stays.
	PluginsDir string
	// DataDir is what the configuration names, "" for the default: the service may write there.
	DataDir string
	Out     io.Writer
	// Run executes a command of the host; exec.CommandContext when nil.
	Run func(ctx context.Context, name string, args ...string) error
}

// The places of an installation.
const (
	BinaryPath = "/usr/local/bin/bcd"
	ConfigPath = "/etc/bcd/config.toml"
	DataDir    = "/var/lib/bcd"
	UnitPath   = "/etc/systemd/system/bcd.service"
	account    = "bcd"
)

// unit keeps the capabilities that sockets need, and those that give each driver plugin a uid of its own, kill it and hand it
// its socket's directory; nothing else (systemd.exec(5)). The cgroup is delegated, with bcd in a leaf of it, so that plugins
// can have their own beside it (systemd.resource-control(5)). Only bcd is told to stop: it stops its plugins in order.
const unit = `[Unit]
Description=bcd bare-metal provisioning
Documentation=https://github.com/better-compute/bcd
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/local/bin/bcd site --config /etc/bcd/config.toml
ExecReload=/bin/kill -HUP $MAINPID
KillMode=mixed
User=bcd
Group=bcd
StateDirectory=bcd
StateDirectoryMode=0700
AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SETUID CAP_SETGID CAP_KILL CAP_CHOWN
CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SETUID CAP_SETGID CAP_KILL CAP_CHOWN
Delegate=yes
DelegateSubgroup=main
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=no
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK AF_PACKET
SystemCallArchitectures=native
UMask=0077
Restart=on-failure
RestartSec=2
TimeoutStopSec=30
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
`

// config is written only where there is none: an upgrade keeps the operator's.
const config = `# bcd's configuration. Every line is optional; the values shown are the defaults.
# Networks, users, images and machines live in the store: see the console.

[site]
# name = ""   # what the console calls this site, until its settings say otherwise
# data_dir = "/var/lib/bcd"   # after a change run bcd install again: the service may write nowhere else
# destructive_batch = 5   # machines that one operator may do something to at once that cannot be taken back

[listen]
# console = ":8443"   # HTTPS: browser, API and CLI
# agent = ":8444"     # HTTPS: machines in the ramdisk
# boot = ":8080"      # HTTP: boot files and image chunks

[plugins]
# builtin = "ipmi"    # plugin inside the program; "" runs none
# dir = ""            # plugins and their pins, such as /usr/local/lib/bcd/plugins; see bcd plugin add
# cgroup = ""         # /sys/fs/cgroup/system.slice/bcd.service/plugins holds plugins to the limits below
# memory_max = 0      # bytes for each plugin
# pids_max = 0        # tasks of each plugin
# user = ""           # account of all plugins; by default each has a user id of its own
# privileged = ""     # plugins that run as root and unfiltered, separated by commas
# sandbox = true      # no new privileges, and a filter of system calls
# landlock = true     # confinement of the file system, where the kernel can
# read_paths = []     # what plugins may read besides the system's programs and libraries

[bmc_drivers]
# acme-bmc = ["power.getPower", "power.setPower"]   # what a driver serves, where its plugin says more than is true

[vault]
# address = "https://vault.example:8200"   # server that vault://MOUNT/PATH#FIELD is read from, KV version 2; there is none by default
# ca_file = ""          # PEM of the authority behind its certificate; the system's by default
# namespace = ""
# token_file = ""       # file with a token, or:
# role_id = ""          # AppRole
# secret_id_file = ""   # file with its secret id
# auth_mount = "approle"
# timeout = "10s"       # of one request
`

// Install puts the binary, account, directories, configuration and unit in place. Running it again changes nothing that is
// already right, and never the configuration. A service that runs is restarted when its binary or unit is another than before.
func (in Installation) Install(ctx context.Context) error {
	if in.Root == "/" && os.Geteuid() != 0 {
		return app.Errorf(app.Forbidden, "not-root", "bcd install needs root").Do("run it with sudo")
	}
	if err := in.checkDataDir(); err != nil {
		return err
	}
	if err := in.account(ctx); err != nil {
		return err
	}
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{"/etc/bcd", 0o755}, {in.dataDir(), 0o700}, {"/usr/local/bin", 0o755}} {
		if err := os.MkdirAll(in.at(d.path), d.mode); err != nil {
			return fmt.Errorf("making %s: %w", d.path, err)
		}
	}
	_, err := os.Stat(in.at(UnitPath))
	before := err == nil
	newBinary, err := in.copyBinary()
	if err != nil {
		return err
	}
	if err := in.writeOnce(ConfigPath, config, 0o644); err != nil {
		return err
	}
	newUnit, err := in.write(UnitPath, in.unit(), 0o644)
	if err != nil {
		return err
	}
	if err := in.start(ctx, before && (newBinary || newUnit)); err != nil {
		return err
	}
	in.say("installed: open https://<this host>:8443/ and use the setup code that `journalctl -u bcd` shows")
	return nil
}

func (in Installation) dataDir() string { return cmp.Or(in.DataDir, DataDir) }

// checkDataDir refuses a place that the unit shuts, or that a unit cannot name.
func (in Installation) checkDataDir() error {
	dir := filepath.Clean(in.dataDir())
	for _, shut := range []string{"/home", "/root", "/run", "/tmp", "/var/tmp", "/dev", "/proc", "/sys"} {
		if dir == shut || strings.HasPrefix(dir, shut+"/") {
			return app.Errorf(app.InvalidConfig, "bad-data-dir", "the service cannot keep its data in %s: it does not see %s", dir, shut).
				At("site.data_dir").Do("name a directory such as /srv/bcd")
		}
	}
	if dir == "/" || !filepath.IsAbs(dir) || strings.ContainsFunc(dir, func(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'\\%:;*?[]", r) || r > '~' }) {
		return app.Errorf(app.InvalidConfig, "bad-data-dir", "%q cannot be named in a unit of systemd", dir).
			At("site.data_dir").Do("name a whole path of letters, digits, dashes, dots and slashes, such as /srv/bcd")
	}
	return nil
}

// unit is the service's, which may write to its data only.
func (in Installation) unit() string {
	if in.dataDir() == DataDir {
		return unit
	}
	const last = "StateDirectoryMode=0700\n"
	return strings.Replace(unit, last, last+"ReadWritePaths="+filepath.Clean(in.DataDir)+"\n", 1)
}

// start makes systemd run what is installed, now and after each boot.
func (in Installation) start(ctx context.Context, upgraded bool) error {
	steps := [][]string{{"chown", "-R", account + ":" + account, in.dataDir()}, {"systemctl", "daemon-reload"}}
	if upgraded { // enable --now leaves a service that runs as it is
		in.say("upgraded: bcd.service is restarted if it runs")
		steps = append(steps, []string{"systemctl", "try-restart", "bcd.service"})
	}
	for _, c := range append(steps, []string{"systemctl", "enable", "--now", "bcd.service"}) {
		if err := in.run(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Uninstall stops and removes the unit and the binary. Configuration, data and plugins stay: they are named, not deleted.
func (in Installation) Uninstall(ctx context.Context) error {
	if in.Root == "/" && os.Geteuid() != 0 {
		return app.Errorf(app.Forbidden, "not-root", "bcd uninstall needs root").Do("run it with sudo")
	}
	if _, err := os.Stat(in.at(UnitPath)); err == nil {
		if err := in.run(ctx, "systemctl", "disable", "--now", "bcd.service"); err != nil {
			return err
		}
	}
	for _, p := range []string{UnitPath, BinaryPath} {
		if err := os.Remove(in.at(p)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", p, err)
		}
	}
	if err := in.run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	kept := []string{"configuration " + ConfigPath, "data " + in.dataDir()}
	if in.PluginsDir != "" {
		kept = append(kept, "plugins "+in.PluginsDir)
	}
	in.say("removed the service; kept: %s. Delete them by hand if you are sure", strings.Join(kept, ", "))
	return nil
}

func (in Installation) at(path string) string { return filepath.Join(in.Root, path) }

func (in Installation) say(format string, args ...any) { fmt.Fprintf(in.Out, format+"\n", args...) }

func (in Installation) run(ctx context.Context, name string, args ...string) error {
	if in.Run != nil {
		return in.Run(ctx, name, args...)
	}
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return app.Errorf(app.Internal, "host-command", "%s %v failed: %s: %w", name, args, printable(string(out), 400), err)
	}
	return nil
}

func (in Installation) account(ctx context.Context) error {
	if in.run(ctx, "getent", "passwd", account) == nil {
		return nil
	}
	in.say("adding the account %s", account)
	return in.run(ctx, "useradd", "--system", "--home-dir", in.dataDir(), "--shell", "/usr/sbin/nologin", account)
}

// copyBinary replaces the installed binary by rename, so that a running one keeps its file, and reports whether it did: the
// same bytes stay.
func (in Installation) copyBinary() (bool, error) {
	src, err := os.Open(in.Binary)
	if err != nil {
		return false, fmt.Errorf("opening the binary: %w", err)
	}
	defer src.Close()
	dst := in.at(BinaryPath)
	if same, err := sameBytes(in.Binary, dst); err != nil || same {
		return false, err
	}
	tmp, err := os.OpenFile(dst+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return false, fmt.Errorf("writing the binary: %w", err)
	}
	_, err = io.Copy(tmp, src)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return false, errors.Join(fmt.Errorf("writing the binary: %w", err), os.Remove(dst+".new"))
	}
	in.say("installing %s", BinaryPath)
	return true, os.Rename(dst+".new", dst)
}

// sameBytes reports whether two files hold the same; one that does not exist holds nothing.
func sameBytes(a, b string) (bool, error) {
	var sums [2][]byte
	for i, path := range []string{a, b} {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("comparing binaries: %w", err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return false, fmt.Errorf("comparing binaries: %w", err)
		}
		sums[i] = h.Sum(nil)
	}
	return bytes.Equal(sums[0], sums[1]), nil
}

func (in Installation) writeOnce(path, body string, mode os.FileMode) error {
	if _, err := os.Stat(in.at(path)); err == nil {
		in.say("keeping %s", path)
		return nil
	}
	_, err := in.write(path, body, mode)
	return err
}

// write reports whether the file was another before.
func (in Installation) write(path, body string, mode os.FileMode) (bool, error) {
	if old, err := os.ReadFile(in.at(path)); err == nil && string(old) == body {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(in.at(path)), 0o755); err != nil {
		return false, fmt.Errorf("making the directory of %s: %w", path, err)
	}
	in.say("writing %s", path)
	if err := os.WriteFile(in.at(path), []byte(body), mode); err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	return true, nil
}
