package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app/lab"
)

// labCommand is the appliance with two virtual machines: what a newcomer runs first, and people without hardware rehearse
// on.
func labCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "Run the main job in virtual machines on an isolated network; needs root.", Args: cobra.NoArgs}
	work := cmd.Flags().String("work", ".cache/lab", "directory for the built image, kept, and for the machines, removed at the end")
	console := cmd.Flags().String("console", "127.0.0.1:8443", "address of the console")
	ramdisk := cmd.Flags().String("ramdisk", "", "directory of another ramdisk than the one inside this binary")
	flavour := cmd.Flags().String("flavour", "lab", "ramdisk inside this binary: lab, or server as for hardware")
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
		return lab.Run(cmd.Context(), lab.Config{Work: *work, Auto: *auto, Console: *console, Out: cmd.OutOrStdout(), Log: log, Start: lab.Program{Version: version, Ramdisk: *ramdisk, Flavour: *flavour, Builtins: builtins}.Start})
	}
	cmd.AddCommand(figuresCommand())
	return cmd
}
