//go:build unix

package bcx

import (
	"os/exec"
	"syscall"
)

// ownGroup starts a command in a process group of its own, so that a ^C for the host does not reach it.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends the command's process group at once.
func killGroup(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
