package sandbox

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// want gives the answer to each call under the filter.
func want(t *testing.T) map[string]string {
	if filterArch[runtime.GOARCH] == 0 {
		t.Skip("left out: there is no filter for " + runtime.GOARCH)
	}
	w := map[string]string{}
	for _, c := range allCalls() {
		w[c.String()] = "EPERM"
	}
	w["clone3"] = "ENOSYS"
	w[call{"clone", [3]uintptr{unix.CLONE_THREAD}}.String()] = "EINVAL" // no namespace: the kernel's own answer
	return w
}

// TestDeniedCalls makes every call of the list from inside a plugin.
func TestDeniedCalls(t *testing.T) {
	needRoot(t)
	w := want(t)
	got := result[map[string]string](t, open(t, Config{Enabled: true}), plugin(t, "alpha", "calls"))
	if len(got) != len(w) {
		t.Errorf("%d calls were made, the list has %d", len(got), len(w))
	}
	for name, errno := range w {
		if got[name] != errno {
			t.Errorf("%s: %s, want %s", name, got[name], errno)
		}
	}
}

// TestFilterItself tells the filter's answers from those that any account without privileges gets: the calls are made by root,
// with the filter and without.
func TestFilterItself(t *testing.T) {
	needRoot(t)
	w := want(t)
	run := func(probe string) map[string]string {
		cmd := exec.Command("/proc/self/exe", probeArg, probe)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return decode[map[string]string](t, string(out))
	}
	filtered, bare := run("filtered"), run("calls")
	for name, errno := range w {
		if filtered[name] != errno {
			t.Errorf("%s under the filter: %s, want %s", name, filtered[name], errno)
		}
		if bare[name] == errno && errno != "EINVAL" {
			t.Logf("%s answers %s without the filter too", name, errno)
		}
	}
}

// TestListIsWhole holds the list against what a plugin must be refused, both ways: nothing is missing, nothing is in it that
// nobody asked for.
func TestListIsWhole(t *testing.T) {
	both := []string{
		"kexec_load", "kexec_file_load", "reboot",
		"init_module", "finit_module", "delete_module",
		"mount", "umount2", "pivot_root",
		"open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", // the new mount API
		"unshare", "setns",
		"swapon", "swapoff",
		"bpf", "io_uring_setup", "io_uring_enter", "io_uring_register",
		"ptrace", "process_vm_readv", "process_vm_writev", "perf_event_open", "userfaultfd",
		"keyctl", "add_key", "request_key",
		"open_by_handle_at",
		"settimeofday", "clock_settime", "adjtimex", "clock_adjtime",
		"acct", "quotactl", "quotactl_fd", "lookup_dcookie", "syslog",
	}
	for name, list := range map[string][]string{"amd64": append(slices.Clone(both), "iopl", "ioperm"), "arm64": both} {
		refused := deniedCalls(name)
		slices.Sort(refused)
		slices.Sort(list)
		if !slices.Equal(refused, list) {
			t.Errorf("%s refuses\n%q, not\n%q", name, refused, list)
		}
	}
}

// TestNamesExist looks the list up in the tables of both architectures: a name that one lacks would keep every plugin of it
// from starting.
func TestNamesExist(t *testing.T) {
	for _, name := range []string{"amd64", "arm64"} {
		info, err := arch.GetInfo(name)
		if err != nil || uint32(info.ID) != filterArch[name] {
			t.Fatal(name, info, err)
		}
		for _, c := range append(deniedCalls(name), "clone", "clone3") {
			if _, ok := info.SyscallNames[c]; !ok {
				t.Errorf("%s has no %s", name, c)
			}
		}
	}
}

// elf is a static executable for amd64 of this code alone (elf(5)).
func elf(code []byte) string {
	const base, headers = 0x400000, 64 + 56
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	le := binary.LittleEndian
	b = le.AppendUint16(b, 2)  // ET_EXEC
	b = le.AppendUint16(b, 62) // EM_X86_64
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, base+headers)
	b = le.AppendUint64(b, 64) // program header
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{64, 56, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // readable, executable
	size := uint64(headers + len(code))
	for _, v := range []uint64{0, base, base, size, size, 4096} {
		b = le.AppendUint64(b, v)
	}
	return string(append(b, code...))
}

// exitCode is exit(0) by the native ABI: mov eax, 60; xor edi, edi; syscall.
var exitCode = []byte{0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05}

// TestForeignABI makes a harmless call by another ABI than the machine's: the process is killed, not refused.
func TestForeignABI(t *testing.T) {
	needRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("left out: the code is for amd64")
	}
	s := open(t, Config{Enabled: true})
	for name, tt := range map[string]struct {
		code   []byte
		signal syscall.Signal // 0: it ends well
	}{
		"native getpid":         {code: []byte{0xb8, 39, 0, 0, 0, 0x0f, 0x05}},
		"x32 getpid":            {[]byte{0xb8, 39, 0, 0, 0x40, 0x0f, 0x05}, unix.SIGSYS},
		"i386 getpid, int 0x80": {[]byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80}, unix.SIGSYS},
		"i386 mount, int 0x80":  {[]byte{0xb8, 21, 0, 0, 0, 0xcd, 0x80}, unix.SIGSYS},
	} {
		t.Run(name, func(t *testing.T) {
			_, state := output(t, s, program(t, "alpha", script(t, elf(append(tt.code, exitCode...)))))
			status := state.Sys().(syscall.WaitStatus)
			if tt.signal == 0 && !state.Success() || tt.signal != 0 && status.Signal() != tt.signal {
				t.Errorf("it ended with %s", state)
			}
		})
	}
}
