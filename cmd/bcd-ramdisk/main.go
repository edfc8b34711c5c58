// Command bcd-ramdisk is everything bcd runs inside a booted machine: PID 1, the agent that PID 1 keeps running, and the
// answer to the kernel's requests for modules. It is built into u-root's busybox, so it must stay one thin main.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/better-compute/bcd/images/agent/early"
)

const name = "bcd-ramdisk"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case os.Getpid() == 1:
		return early.Run(context.Background(), early.Config{Exe: "/proc/self/exe", Agent: []string{name, "agent"}})
	case len(args) >= 2 && args[0] == "modprobe": // by /sbin/modprobe, whose own name is the second argument
		return early.Modprobe(args[2:], slog.New(slog.DiscardHandler))
	case len(args) == 1 && args[0] == "agent":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return agent(ctx)
	}
	return fmt.Errorf("it runs as init in bcd's ramdisk; there is nothing to do with %q", args)
}

func agent(ctx context.Context) error {
	r, err := early.WaitSettled(ctx, early.ReportPath)
	fmt.Printf("settled %v, drivers %v, failed %v, wants %v\n", r.Settled, r.Loaded, r.Failed, r.Wants)
	<-ctx.Done()
	return err
}
