package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// namedNamespaces is where iproute2 keeps network namespaces by name.
const namedNamespaces = "/run/netns"

// InNamespace runs f on a thread of its own inside the named network namespace: sockets, netlink and /proc/sys/net in f are
// those of the namespace, and sockets stay there for good. f must not start goroutines that open sockets: those would run
// on other threads, in the host's namespace.
func InNamespace(name string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and no other goroutine finds itself in the namespace.
		runtime.LockOSThread()
		done <- inside(filepath.Join(namedNamespaces, name), f)
	}()
	return <-done
}

func inside(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	if err := errors.Join(err, ns.Close()); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", path, err)
	}
	return f()
}

// createNamespace makes a named network namespace as `ip netns add` does: a bind mount of the namespace's file.
func createNamespace(name string) error {
	if err := os.MkdirAll(namedNamespaces, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", namedNamespaces, err)
	}
	path := filepath.Join(namedNamespaces, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("naming the network namespace: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, as above
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return errors.Join(fmt.Errorf("making network namespace %s: %w", name, err), os.Remove(path))
	}
	return nil
}

// removeNamespace takes away the name, and with it, once nobody lives there, the namespace and its devices.
func removeNamespace(name string) error {
	path := filepath.Join(namedNamespaces, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// OpenNamespace opens a named namespace, to put a device into it.
func OpenNamespace(name string) (*os.File, error) {
	return os.Open(filepath.Join(namedNamespaces, name))
}
