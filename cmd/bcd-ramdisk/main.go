// Command bcd-ramdisk is everything bcd runs inside a booted machine: PID 1, the agent that PID 1 keeps running, and the
// answer to the kernel's requests for modules. It is built into u-root's busybox, so it must stay one thin main.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/early"
)

// name is what the busybox knows this command by.
const name = "bcd-ramdisk"

// version is set by the linker. It has no value here: the busybox would set that again at run time.
var version string

func main() { os.Exit(run(os.Args[1:])) }

// run gives the exit code.
func run(args []string) int {
	switch {
	case os.Getpid() == 1:
		return exit(early.Run(context.Background(), early.Config{Exe: "/proc/self/exe", Agent: []string{name, "agent"}}))
	case len(args) == 1 && args[0] == "agent":
		return agent.Main(version)
	case len(args) >= 2 && args[0] == "modprobe": // by /sbin/modprobe, whose own name is the second argument
		return exit(early.Modprobe(args[2:], slog.New(slog.DiscardHandler)))
	}
	return exit(fmt.Errorf("it is the init and the agent of bcd's ramdisk; there is nothing to do with %q", args))
}

func exit(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, name+":", err)
	return 1
}
