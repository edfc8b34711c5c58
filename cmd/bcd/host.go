package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/host"
	"github.com/better-compute/bcd/app/site"
)

// hostCommands are what runs on the appliance itself.
func hostCommands() []*cobra.Command {
	all := []*cobra.Command{siteCommand(), checkCommand(), installCommand(), uninstallCommand(), backupCommand(), restoreCommand(),
		resetPasswordCommand(), ramdiskCommand(), licensesCommand(), labCommand()}
	for _, c := range all {
		c.GroupID = "host"
	}
	return all
}

func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("config", host.ConfigPath, "configuration file; the defaults hold when it is absent")
}

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Check that this host can run the appliance; changes nothing.", Args: cobra.NoArgs}
	config := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := site.LoadFile(*config)
		if err != nil {
			return err
		}
		facts, err := host.Look("/proc", f.Site.DataDir)
		if err != nil {
			return err
		}
		findings := host.Check(facts, f.Needs())
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"items": findings})
		}
		bad := 0
		for _, x := range findings {
			fmt.Fprintf(cmd.OutOrStdout(), "%-4s  %s\n", x.Level, x.Message)
			if x.WayOut != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "      → %s\n", x.WayOut)
			}
			if x.Level == "fail" {
				bad++
			}
		}
		if bad > 0 {
			return app.Errorf(app.Conflict, "check-failed", "%d checks failed", bad).Do("mend what is marked fail above")
		}
		return nil
	}
	return cmd
}

func installation(cmd *cobra.Command) (host.Installation, error) {
	exe, err := os.Executable()
	if err != nil {
		return host.Installation{}, fmt.Errorf("finding this program: %w", err)
	}
	return host.Installation{Root: "/", Binary: exe, Out: cmd.OutOrStdout()}, nil
}

func installCommand() *cobra.Command {
	return &cobra.Command{Use: "install", Short: "Install the appliance as a systemd service, or upgrade it; a second run changes nothing.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := installation(cmd)
			if err != nil {
				return err
			}
			if _, err := os.Stat(host.ConfigPath); err == nil {
				f, err := site.LoadFile(host.ConfigPath)
				if err != nil {
					return err
				}
				in.DataDir = f.Site.DataDir
			}
			return in.Install(cmd.Context())
		}}
}

func uninstallCommand() *cobra.Command {
	return &cobra.Command{Use: "uninstall", Short: "Remove the service and the binary; keeps configuration, data and plugins.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := installation(cmd)
			if err != nil {
				return err
			}
			if f, err := site.LoadFile(host.ConfigPath); err == nil { // a broken configuration is no reason to stay
				in.PluginsDir, in.DataDir = f.Plugins.Dir, f.Site.DataDir
			}
			return in.Uninstall(cmd.Context())
		}}
}
