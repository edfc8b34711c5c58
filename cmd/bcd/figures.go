package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app/lab/figures"
	"github.com/better-compute/bcd/app/site"
)

// figuresCommand measures what users wait for.
func figuresCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "figures", Short: "Measure boot times, deploy rates, memory and lists; needs root and a quiet machine.", Args: cobra.NoArgs}
	only := cmd.Flags().StringSlice("only", nil, "figures to measure, separated by commas; all when not given: "+strings.Join(figures.Names(), ", "))
	runs := cmd.Flags().Int("runs", 3, "boots and deploys behind a median")
	ratios := cmd.Flags().Int("ratios", 5, "pairs of writes behind a deploy ratio")
	work := cmd.Flags().String("work", ".cache/figures", "directory for the log, and for what is measured, removed at the end")
	images := cmd.Flags().String("images", "", "directory that keeps built Debian images; default: images in the work directory")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := os.MkdirAll(*work, 0o755); err != nil {
			return err
		}
		if *images == "" {
			*images = filepath.Join(*work, "images")
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		logFile, err := os.Create(filepath.Join(*work, "figures.log"))
		if err != nil {
			return err
		}
		defer logFile.Close()
		log := slog.New(slog.NewTextHandler(logFile, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return figures.Run(cmd.Context(), figures.Config{Only: *only, Boots: *runs, Ratios: *ratios, Work: *work, Images: *images, Binary: self, Plugin: builtins[site.Builtin],
			Out: cmd.OutOrStdout(), Progress: cmd.ErrOrStderr(), Log: log})
	}
	return cmd
}
