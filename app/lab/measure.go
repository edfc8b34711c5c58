package lab

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
)

// Direct describes a machine for DirectBoot.
type Direct struct {
	virtual.Direct
	MemoryMiB int                // default 512
	Netdev    string             // value of QEMU's -netdev; default a network on which nobody answers but QEMU's DHCP server
	OnLine    func(virtual.Line) // gets each line of the console; may be nil
}

// DirectBoot boots a kernel and an initramfs in a virtual machine without firmware, disk or network loader, and gives the
// first console line that matches: its SincePower is the time from power-on.
func DirectBoot(ctx context.Context, d Direct, mark *regexp.Regexp) (virtual.Line, error) {
	dir, err := os.MkdirTemp("", "bcd-boot-")
	if err != nil {
		return virtual.Line{}, fmt.Errorf("making a folder for the machine: %w", err)
	}
	defer os.RemoveAll(dir)
	if d.MemoryMiB == 0 {
		d.MemoryMiB = 512
	}
	if d.Netdev == "" {
		d.Netdev = "user,restrict=on"
	}
	m, err := virtual.New(virtual.Config{
		Name: "direct", Dir: dir, MemoryMiB: d.MemoryMiB, UUID: "b0a7ca5e-0000-4000-8000-0000000000ff", Serial: "DIRECT",
		Direct: &d.Direct, NICs: []virtual.NIC{{MAC: MAC(254), Netdev: d.Netdev}}, Password: BMCPassword, OnLine: d.OnLine,
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
