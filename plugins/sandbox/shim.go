package sandbox

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// exeFD is the descriptor that a plugin's verified binary has in the shim and in the plugin; gateFD is the shim's alone.
const (
	exeFD   = 3
	gateFD  = 4
	exePath = "/proc/self/fd/3"
)

// order is what the shim is told, by its arguments.
type order struct {
	gate     bool     // wait for leave on gateFD: bcd is putting this process into its cgroup
	confine  bool     // no capabilities, no new privileges, and the filter
	landlock bool     // needs confine
	files    files    // for landlock
	argv     []string // the plugin's, argv[0] first
}

// args is what parseOrder reads.
func (o order) args() []string {
	a := []string{"exec"}
	for _, f := range []struct {
		name string
		set  bool
	}{{"gate", o.gate}, {"confine", o.confine}, {"landlock", o.landlock}, {"shared", o.files.shared}} {
		if f.set {
			a = append(a, "-"+f.name)
		}
	}
	if o.landlock {
		a = append(a, "-dir="+o.files.socketDir)
		for _, p := range o.files.readPaths {
			a = append(a, "-read="+p)
		}
	}
	return append(append(a, "--"), o.argv...)
}

func parseOrder(args []string) (order, error) {
	var o order
	f := flag.NewFlagSet("exec", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.gate, "gate", false, "")
	f.BoolVar(&o.confine, "confine", false, "")
	f.BoolVar(&o.landlock, "landlock", false, "")
	f.BoolVar(&o.files.shared, "shared", false, "")
	f.StringVar(&o.files.socketDir, "dir", "", "")
	f.Func("read", "", func(p string) error { o.files.readPaths = append(o.files.readPaths, p); return nil })
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.argv = f.Args()
	if len(o.argv) == 0 || o.landlock && (!o.confine || o.files.socketDir == "") {
		return o, errors.New("incomplete")
	}
	return o, nil
}

// RunShim is the hidden command ShimCommand with the arguments after it: the shim, which becomes the plugin, or the guard,
// which lives as long as bcd. It returns, with the exit code, only when it failed or the guard's work is done. Nobody calls it
// by hand: bcd does, with arguments that are not for others to know.
func RunShim(args []string) int {
	err := errors.New("this command is bcd's own: it starts plugins")
	switch {
	case len(args) > 0 && args[0] == "exec":
		err = runExec(args[1:])
	case len(args) > 1 && args[0] == "guard":
		err = runGuard(args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bcd %s: %s\n", ShimCommand, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// runExec gives this process away to the plugin. All happens on one thread, since Landlock and no_new_privs are a thread's;
// exec ends the others.
func runExec(args []string) error {
	runtime.LockOSThread()
	o, err := parseOrder(args)
	if err != nil {
		return fmt.Errorf("reading the shim's arguments: %w", err)
	}
	if o.gate {
		if err := pass(gateFD); err != nil {
			return err
		}
	}
	if err := onlyExe(); err != nil {
		return err
	}
	if o.confine {
		if err := confine(o); err != nil {
			return err
		}
	}
	if err := unix.Exec(exePath, o.argv, os.Environ()); err != nil {
		return fmt.Errorf("running plugin %q: %w", o.argv[0], err)
	}
	return nil
}

// pass waits for leave: one byte. The end without it means that bcd died or gave up.
func pass(fd int) error {
	b := make([]byte, 1)
	for {
		n, err := unix.Read(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n != 1 {
			err = io.EOF
		}
		if err != nil {
			return fmt.Errorf("waiting for bcd's leave to run: %w", err)
		}
		return unix.Close(fd)
	}
}

// onlyExe sees that descriptor 3 is a regular file, and lets no other but standard input, output and error through.
func onlyExe() error {
	var st unix.Stat_t
	if err := unix.Fstat(exeFD, &st); err != nil {
		return fmt.Errorf("looking at descriptor 3: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("descriptor 3 is not a plugin's binary")
	}
	if _, err := unix.FcntlInt(exeFD, unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("keeping descriptor 3: %w", err)
	}
	// Kernels before 5.11 do not know the flag; there, every descriptor of bcd is marked by itself all the same.
	if err := unix.CloseRange(exeFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS && err != unix.EINVAL {
		return fmt.Errorf("closing descriptors: %w", err)
	}
	return nil
}

// confine is Landlock, no capabilities, no_new_privs and the filter, on the calling thread.
func confine(o order) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	if o.landlock {
		if err := restrictFiles(o.files); err != nil {
			return err
		}
	}
	if err := dropAll(); err != nil {
		return err
	}
	if _, ok := filterArch[runtime.GOARCH]; !ok {
		return nil // State says so
	}
	return filterThreads()
}
