// Package sandbox confines driver plugins: a uid of their own, no capabilities, no new privileges, a system call filter,
// Landlock, and a cgroup with limits. The host starts every plugin through it.
//
// Three processes have a part in it, all of the appliance's own binary:
//
//	bcd ── forks, on one thread that lives as long as any plugin ──▶ shim (ShimCommand) ── execs ──▶ plugin, from fd 3
//	 └──── one pipe, whose end is bcd's end ──▶ guard (ShimCommand) ── kills what a dead bcd leaves behind
//
// The kernel kills a plugin when the thread that forked it ends (PR_SET_PDEATHSIG), but not what the plugin started; that
// is the guard's work, as is every Kill: kill(-1) under the plugin's uid and no other power, which no fork outruns.
//
// The command line's first argument decides who a process is, so main has to hand ShimCommand to RunShim before it does
// anything else; nothing is ever decided by the environment.
package sandbox
