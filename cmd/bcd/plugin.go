package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/plugins/host"
)

// pluginCommands change the plugins directory of this host: what may run is decided here, by root, and never over the
// network. euid is who asks.
func pluginCommands(euid int) []*cobra.Command {
	all := []*cobra.Command{pluginAdd(), pluginPin(), pluginRemove(), pluginReload()}
	for _, c := range all {
		run := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if euid == 0 {
				return run(cmd, args)
			}
			return app.Errorf(app.Forbidden, "needs-root", "only root decides which plugins run on this host").Do("run it with sudo: sudo %s", cmd.CommandPath())
		}
	}
	return all
}

func pluginAdd() *cobra.Command {
	cmd := &cobra.Command{Use: "add <file>", Short: "Install a plugin on this host and pin it, or replace it.", Args: cobra.ExactArgs(1),
		Long: "Copy a file into the plugins directory of this host, pin its SHA-256 and start it. Needs root on the host."}
	name := cmd.Flags().String("name", "", "name of the plugin; default: the file's")
	return onPlugins(cmd, func(cmd *cobra.Command, dir string, args []string) (string, error) {
		if *name == "" {
			*name = filepath.Base(args[0])
		}
		p, err := host.Add(cmd.Context(), dir, *name, args[0])
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "pinned %s as %s\n", p.Name, p.SHA256)
		}
		return p.Name, err
	})
}

func pluginPin() *cobra.Command {
	cmd := &cobra.Command{Use: "pin <plugin>", Short: "Pin a plugin's file as it stands in the directory now.", Args: cobra.ExactArgs(1)}
	return onPlugins(cmd, func(cmd *cobra.Command, dir string, args []string) (string, error) {
		p, err := host.Repin(cmd.Context(), dir, args[0])
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "pinned %s as %s\n", p.Name, p.SHA256)
		}
		return p.Name, err
	})
}

func pluginRemove() *cobra.Command {
	cmd := &cobra.Command{Use: "remove <plugin>", Short: "Stop a plugin and remove its pin and file from this host.", Args: cobra.ExactArgs(1)}
	return onPlugins(cmd, func(cmd *cobra.Command, dir string, args []string) (string, error) {
		if err := host.Remove(dir, args[0]); err != nil {
			return "", err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", args[0])
		return "", nil
	})
}

func pluginReload() *cobra.Command {
	cmd := &cobra.Command{Use: "reload", Short: "Take up the pins of this host as they are now.", Args: cobra.NoArgs}
	return onPlugins(cmd, func(*cobra.Command, string, []string) (string, error) { return "", nil })
}

// onPlugins completes a command that changes the plugins directory: afterwards the appliance that runs here takes the pins
// up and says how the plugin that change names does.
func onPlugins(cmd *cobra.Command, change func(cmd *cobra.Command, dir string, args []string) (name string, err error)) *cobra.Command {
	config := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := site.LoadFile(*config)
		if err != nil {
			return err
		}
		if f.Plugins.Dir == "" {
			return app.Errorf(app.InvalidConfig, "no-plugins-dir", "%s names no plugins directory", *config).
				At("plugins.dir").Do(`write dir = "/usr/local/lib/bcd/plugins" below [plugins], and restart bcd`)
		}
		name, err := change(cmd, f.Plugins.Dir, args)
		if err != nil {
			return unchanged(f.Plugins.Dir, err)
		}
		said, err := site.TakeUpPlugins(cmd.Context(), f.Site.DataDir, name)
		if e, ok := app.AsError(err); ok && e.Reason == "not-running" {
			fmt.Fprintln(cmd.OutOrStdout(), "bcd does not run here: it takes this up when it starts")
			return nil
		}
		if err == nil && said != "" {
			fmt.Fprintln(cmd.OutOrStdout(), said)
		}
		return err
	}
	return cmd
}

// unchanged tells a person why the plugins directory cannot be changed.
func unchanged(dir string, err error) error {
	if _, ok := app.AsError(err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return app.Errorf(app.NotFound, "no-plugin-file", "there is no such plugin in %s: %w", dir, err).Do("install it with bcd plugin add")
	case errors.Is(err, syscall.ENOSPC):
		return app.Errorf(app.StorageFull, "no-space", "the plugins in %s cannot be changed: %w", dir, err).Do("make room on that file system, then run this again")
	}
	return app.Errorf(app.Conflict, "plugins-dir-refused", "the plugins in %s cannot be changed: %w", dir, err).
		Do("the directory and its files must belong to root, and nobody else may write them; mend that, then run this again")
}
