package sandbox

import (
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// landlockNewest is the newest version of Landlock that plugins were seen to run under; an older kernel gives what it has.
const landlockNewest = 7

// landlockABI is what is asked of it: files, devices' ioctls, and the scopes of signals and abstract sockets. Network and
// sockets in the file system are left alone.
var landlockABI = landlock.Config{HandledAccessFS: landlock.V7.HandledAccessFS, Scoped: landlock.V7.Scoped}

const (
	readRights   = ll.AccessFSReadFile | ll.AccessFSReadDir
	runRights    = readRights | ll.AccessFSExecute
	deviceRights = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	// ownRights is all but running: what a plugin writes it cannot run.
	ownRights = readRights | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeSym
	fileRights = ll.AccessFSReadFile | ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
)

// The file system as a plugin may see it. File permissions hold besides.
//
// It writes in its socket directory alone. Not in /tmp: what plugins share there they could feed each other, and fill. A
// directory stands here where a file would do, because a rule is tied to the inode: /etc/resolv.conf and its like are
// replaced while a plugin runs. /proc is there whole for the same reason: a rule for /proc/self or /proc/meminfo is lost when
// the kernel drops the entry from its cache. What /proc keeps of other accounts (environment, memory) it gives to nobody else.
var (
	systemPaths  = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}
	readOnly     = []string{"/proc", "/sys", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/dev/random", "/dev/urandom"}
	etcPath      = []string{"/etc"}
	readWriteDev = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/ptmx", "/dev/pts"} // a terminal of its own, for a console
	// etcShared is what programs need of /etc, for plugins under bcd's own uid, from which file permissions keep nothing.
	etcShared = []string{"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf",
		"/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/localtime", "/etc/os-release", "/etc/ssl",
		"/etc/pki", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/alternatives"}
)

// landlockVersion gives the Landlock ABI that plugins run under here, 0 when the kernel has none or it is off.
func landlockVersion() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return min(v, landlockNewest)
}

// files is what a plugin may do with the file system.
type files struct {
	socketDir string
	readPaths []string
	shared    bool // it runs under bcd's uid
}

// rules gives the rules of the plugin whose binary is fd 3.
func (f files) rules() ([]landlock.Rule, error) {
	etc := etcPath
	if f.shared {
		etc = etcShared
	}
	var rules []landlock.Rule
	for _, list := range []struct {
		rights landlock.AccessFSSet
		paths  []string
	}{
		// A script's interpreter opens the script again by this path, which leads to the file itself.
		{runRights, append([]string{"/proc/self/fd/3"}, systemPaths...)},
		{readRights, append(readOnly[:len(readOnly):len(readOnly)], etc...)},
		{runRights, f.readPaths},
		{deviceRights | readRights, readWriteDev},
		{ownRights, []string{f.socketDir}},
	} {
		for _, p := range list.paths {
			r, err := rule(p, list.rights)
			if err != nil {
				return nil, err
			}
			rules = append(rules, r...)
		}
	}
	return rules, nil
}

// rule gives the rule for a path, none when nothing is there: a file takes only the rights that files have.
func rule(path string, rights landlock.AccessFSSet) ([]landlock.Rule, error) {
	i, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("allowing a plugin to use files: %w", err)
	}
	if !i.IsDir() {
		rights &= fileRights
	}
	return []landlock.Rule{landlock.PathAccess(rights, path)}, nil
}

// restrictFiles puts the calling thread, which must be locked, under the rules. no_new_privs must be set on it.
func restrictFiles(f files) error {
	rules, err := f.rules()
	if err != nil {
		return err
	}
	fd, flags, err := landlockABI.BestEffort().NewRulesetFD(rules...)
	if err != nil {
		return fmt.Errorf("making Landlock rules: %w", err)
	}
	if fd < 0 {
		return fmt.Errorf("the kernel has no Landlock: set landlock = false in [plugins]")
	}
	defer unix.Close(fd)
	if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
		return fmt.Errorf("entering Landlock: %w", err)
	}
	return nil
}
