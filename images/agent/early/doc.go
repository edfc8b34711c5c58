// Package early is the first process of the ramdisk. As PID 1 it mounts what the kernel provides, loads a driver for every
// device that the kernel names, now and when one turns up later, acts on the power key, reaps orphans, and runs the agent
// as a child that it starts again when it ends. It also answers the kernel when that asks for a module by name.
//
// What it found (drivers, failures, firmware that a driver asked for in vain, whether the devices have settled) stands in
// a file, ReportPath, for the agent's inventory.
//
// Roots of /proc, /sys and /lib are parameters, so that tests use file trees.
package early
