package lab

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
)

// DirectBoot boots a kernel and an initramfs in a virtual machine without firmware, disk or network server, and gives the
// first console line that matches: its SincePower is the time from power-on. memoryMiB 0 means 512. onLine gets each line
// of the console and may be nil.
func DirectBoot(ctx context.Context, d virtual.Direct, memoryMiB int, mark *regexp.Regexp, onLine func(virtual.Line)) (virtual.Line, error) {
	dir, err := os.MkdirTemp("", "bcd-boot-")
	if err != nil {
		return virtual.Line{}, fmt.Errorf("making a folder for the machine: %w", err)
	}
	defer os.RemoveAll(dir)
	if memoryMiB == 0 {
		memoryMiB = 512
	}
	m, err := virtual.New(virtual.Config{
		Name: "direct", Dir: dir, MemoryMiB: memoryMiB, UUID: "b0a7ca5e-0000-4000-8000-0000000000ff", Serial: "DIRECT",
		Direct: &d, NICs: []virtual.NIC{{MAC: LabMAC(254), Netdev: "user,restrict=on"}}, Password: BMCPassword, OnLine: onLine,
	})
	if err != nil {
		return virtual.Line{}, err
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	defer func() { m.Close(); <-done }()

	type found struct {
		line virtual.Line
		err  error
	}
	match := make(chan found, 1)
	armed := m.Console().Watch(mark)
	go func() {
		l, err := armed.Wait(ctx)
		match <- found{l, err}
	}()
	if err := m.Reset("On"); err != nil {
		return virtual.Line{}, err
	}
	f := <-match
	if f.err != nil {
		return virtual.Line{}, app.Errorf(app.Timeout, "no-such-line", "the machine never printed %q: %w; last it printed:\n%s", mark, f.err, virtual.Plain(m.Console().Tail()))
	}
	return f.line, nil
}
