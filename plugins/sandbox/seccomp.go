package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filterArch gives the AUDIT_ARCH of the architectures that the filter is written for (linux/audit.h).
var filterArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// denied lists, by purpose, what no driver plugin needs and a broken one could abuse. Each answers EPERM.
var denied = []struct {
	what  string
	calls []string
}{
	{"start another kernel", []string{"kexec_load", "kexec_file_load", "reboot"}},
	{"load and delete kernel modules", []string{"init_module", "finit_module", "delete_module"}},
	{"mount", []string{"mount", "umount2", "pivot_root", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount",
		"fspick", "mount_setattr"}},
	{"enter namespaces", []string{"unshare", "setns"}},
	{"swap", []string{"swapon", "swapoff"}},
	{"program the kernel", []string{"bpf", "io_uring_setup", "io_uring_enter", "io_uring_register"}},
	{"reach into processes", []string{"ptrace", "process_vm_readv", "process_vm_writev", "perf_event_open", "userfaultfd"}},
	{"use the kernel's keyring", []string{"keyctl", "add_key", "request_key"}},
	{"open files past their directories", []string{"open_by_handle_at"}},
	{"set the clock", []string{"settimeofday", "clock_settime", "adjtimex", "clock_adjtime"}},
	{"account and read the kernel", []string{"acct", "quotactl", "quotactl_fd", "lookup_dcookie", "syslog"}},
}

// deniedAMD64 exists on that architecture alone.
var deniedAMD64 = []string{"iopl", "ioperm"}

// newNamespaces are the flags of clone(2) that make one. CLONE_NEWTIME lies in the bits of the exit signal: clone(2) cannot
// carry it.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// x32Bit marks the numbers of amd64's x32 ABI, which shares its AUDIT_ARCH (asm/unistd.h, __X32_SYSCALL_BIT).
const x32Bit = 0x40000000

// deniedCalls gives the names for an architecture of filterArch.
func deniedCalls(arch string) []string {
	var names []string
	for _, d := range denied {
		names = append(names, d.calls...)
	}
	if arch == "amd64" {
		names = append(names, deniedAMD64...)
	}
	return names
}

// assemble gives the filter for this machine. The library writes the comparisons; what comes first is ours, because the
// library lets a foreign architecture pass where the default is to allow, and answers x32 with an error.
func assemble() ([]bpf.RawInstruction, error) {
	audit, ok := filterArch[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("there is no system call filter for %s", runtime.GOARCH)
	}
	errno := func(e unix.Errno) seccomp.Action { return seccomp.Action(unix.SECCOMP_RET_ERRNO | uint32(e)) }
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
		{Names: deniedCalls(runtime.GOARCH), Action: errno(unix.EPERM)},
		// clone3 keeps its flags in memory, out of a filter's reach; without it libc and Go use clone.
		{Names: []string{"clone3"}, Action: errno(unix.ENOSYS)},
		{NamesWithCondtions: []seccomp.NameWithConditions{{Name: "clone", Conditions: seccomp.ArgumentConditions{
			{Argument: 0, Operation: seccomp.BitsSet, Value: newNamespaces}}}}, Action: errno(unix.EPERM)},
	}}
	rest, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("assembling the system call filter: %w", err)
	}
	return bpf.Assemble(append(foreign(audit), rest...))
}

// foreign kills the process at a system call of another ABI. Offsets are those of struct seccomp_data: nr 0, arch 4.
func foreign(audit uint32) []bpf.Instruction {
	kill := bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	check := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: audit, SkipTrue: 1},
		kill,
	}
	if audit == unix.AUDIT_ARCH_X86_64 {
		check = append(check,
			bpf.LoadAbsolute{Off: 0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: 1},
			kill)
	}
	return check
}

// filterThreads puts every thread of this process under the filter. no_new_privs must be set on the calling thread.
func filterThreads() error {
	raw, err := assemble()
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// With TSYNC a thread that cannot be taken along is told as a positive result, not as an errno.
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("installing the system call filter: %w", errno)
	case tid != 0:
		return fmt.Errorf("installing the system call filter: thread %d has another one", tid)
	}
	return nil
}
