package sandbox

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os/user"
	"slices"
	"strconv"
)

// The block that bcd keeps for plugins: the top of what systemd leaves unassigned, clear of system users, DynamicUser and
// container ranges.
const (
	firstUID = 0x7FFE0000
	lastUID  = 0x7FFEFFFF
)

// guardName stands for the guard among the names: it needs a uid that no plugin has, and no plugin has this name.
const guardName = ""

// uids gives each name a uid of the block, the same whenever the same names and accounts exist: derived from the name,
// moved past the uids of the names before it and of accounts. taken reports whether an account or group has a number.
func uids(names []string, taken func(id int) (bool, error)) (map[string]int, error) {
	given, used := map[string]int{}, map[int]bool{}
	sorted := slices.Sorted(slices.Values(append([]string{guardName}, names...)))
	for _, name := range slices.Compact(sorted) {
		h := fnv.New32a()
		h.Write([]byte(name))
		start := h.Sum32()
		for i := range uint32(lastUID - firstUID + 1) {
			id := firstUID + int((start+i)&(lastUID-firstUID))
			if used[id] {
				continue
			}
			t, err := taken(id)
			if err != nil {
				return nil, err
			}
			if !t {
				given[name], used[id] = id, true
				break
			}
		}
		if given[name] == 0 {
			return nil, fmt.Errorf("no uid from %d to %d is free for plugin %q", firstUID, lastUID, name)
		}
	}
	return given, nil
}

// accountHas reports whether an account or a group has the number.
func accountHas(id int) (bool, error) {
	n := strconv.Itoa(id)
	_, err := user.LookupId(n)
	if unknown, err := absent(err); !unknown || err != nil {
		return err == nil, err
	}
	_, err = user.LookupGroupId(n)
	unknown, err := absent(err)
	return !unknown && err == nil, err
}

// absent reports whether a lookup ended with "there is none"; a machine without /etc/passwd has none.
func absent(err error) (bool, error) {
	var n user.UnknownUserError
	var u user.UnknownUserIdError
	var g user.UnknownGroupIdError
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &n), errors.As(err, &u), errors.As(err, &g), errors.Is(err, fs.ErrNotExist):
		return true, nil
	default:
		return false, fmt.Errorf("looking up accounts: %w", err)
	}
}

// errRoot is what an account for plugins must not be.
var errRoot = errors.New("plugins never run as root for being told so by user: give user in [plugins] another account, or name the plugin in privileged")

// checkUser refuses what is root by its very name.
func checkUser(name string) error {
	if id, err := strconv.Atoi(name); name == "root" || err == nil && id == 0 {
		return errRoot
	}
	return nil
}

// account gives uid and primary group of an account by name or number. One that is not there, or is root, is a *ConfigError.
func account(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if _, nan := strconv.Atoi(name); err != nil && nan == nil {
		u, err = user.LookupId(name)
	}
	none, err := absent(err)
	if err != nil {
		return 0, 0, err
	}
	if none {
		return 0, 0, &ConfigError{fmt.Errorf("there is no account %q, which user in [plugins] names: create it or take the key out", name)}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("reading account %q: %w", name, err)
	}
	if uid == 0 {
		return 0, 0, &ConfigError{errRoot}
	}
	return uid, gid, nil
}
