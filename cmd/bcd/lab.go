package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/netboot"
)

// labCommand is the appliance with two virtual machines: what a newcomer runs first, and people without hardware rehearse
// on.
func labCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "Run the main job in virtual machines on an isolated network; needs root.", Args: cobra.NoArgs}
	work := cmd.Flags().String("work", "build/lab", "directory for the built image, kept, and for the machines, removed at the end")
	console := cmd.Flags().String("console", "127.0.0.1:8443", "address of the console")
	auto := cmd.Flags().Bool("auto", false, "end after the job")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := os.MkdirAll(*work, 0o755); err != nil {
			return err
		}
		logFile, err := os.Create(filepath.Join(*work, "bcd.log"))
		if err != nil {
			return err
		}
		defer logFile.Close()
		log := slog.New(slog.NewTextHandler(logFile, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return lab.Run(cmd.Context(), lab.Config{Work: *work, Auto: *auto, Console: *console, Out: cmd.OutOrStdout(), Log: log, Start: startLabSite})
	}
	return cmd
}

// labSite is a site that runs in this process.
type labSite struct {
	*site.Site
	done chan error
}

// Wait waits until the site has ended.
func (s labSite) Wait() error { return <-s.done }

// startLabSite starts the appliance with everything for machines in the lab's namespace.
func startLabSite(ctx context.Context, a lab.Appliance) (lab.Site, error) {
	f, err := site.LoadFile("")
	if err != nil {
		return nil, err
	}
	f.Site.DataDir, f.Listen.Console = a.DataDir, a.Console
	s, err := site.New(ctx, site.Config{File: f, Version: version, Log: a.Log, Terminal: io.Discard, Sockets: netboot.Sockets(a.Network.Do)})
	if err != nil {
		return nil, err
	}
	out := labSite{s, make(chan error, 1)}
	up := make(chan struct{})
	go func() { out.done <- s.RunReady(ctx, func() { close(up) }) }()
	select {
	case <-up:
		return out, nil
	case err := <-out.done:
		return nil, err
	}
}
