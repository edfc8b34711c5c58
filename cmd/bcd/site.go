package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/cmd/bcd/internal/cli"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
)

func siteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "site", Short: "Run the appliance.", Args: cobra.NoArgs}
	config := configFlag(cmd)
	debug := cmd.Flags().Bool("debug", false, "log more")
	netns := cmd.Flags().String("netns", "", "network namespace for everything but the console, as a lab has it")
	_ = cmd.Flags().MarkHidden("netns") // the flag was just defined
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := site.LoadFile(*config)
		if err != nil {
			return err
		}
		level := slog.LevelInfo
		if *debug {
			level = slog.LevelDebug
		}
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
		cfg := site.Config{File: f, Version: version, Log: log, Terminal: cmd.OutOrStdout(), Builtins: builtins}
		if *netns != "" {
			cfg.Sockets = func(open func() error) error { return lab.InNamespace(*netns, open) }
		}
		s, err := site.New(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		defer onHangup(func() {
			if err := s.ReloadPlugins(); err != nil {
				log.Error("reading the pins again", "error", err)
			}
		})()
		return s.Run(cmd.Context())
	}
	return cmd
}

// onHangup calls f at each SIGHUP until the function it gives is called, which waits for f.
func onHangup(f func()) (stop func()) {
	signals, over, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer close(done)
		for {
			select {
			case <-signals:
				f()
			case <-over:
				return
			}
		}
	}()
	return func() { signal.Stop(signals); close(over); <-done }
}

// ramdiskCommand builds a ramdisk on the jump host, where there is no Go: from the agent inside this binary and Debian's
// packages.
func ramdiskCommand() *cobra.Command {
	parent := cli.Group(&cobra.Command{Use: "ramdisk", Short: "Build the ramdisk that machines netboot into."})
	var kernel, out, flavour string
	var firmware, ipxe []string
	cmd := &cobra.Command{Use: "build", Short: "Build a ramdisk from Debian's kernel and firmware packages; needs no root.", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&kernel, "kernel-deb", "", "linux-image-*-amd64 package")
	cmd.Flags().StringArrayVar(&firmware, "firmware-deb", nil, "firmware-* package; may be given several times")
	cmd.Flags().StringArrayVar(&ipxe, "ipxe", nil, "directory with iPXE programs, before Debian's")
	cmd.Flags().StringVarP(&out, "out", "o", "", "directory to write; name it as [netboot] ramdisk in config.toml")
	cmd.Flags().StringVar(&flavour, "flavour", ramdisk.Server, "server, or lab for virtual machines only")
	for _, f := range []string{"kernel-deb", "out"} {
		_ = cmd.MarkFlagRequired(f) // the flags were just defined
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := embed.FS(ramdisk.Server)
		if err != nil {
			return app.Errorf(app.Unsupported, "no-agent", "%v", err)
		}
		agent, err := ramdisk.AgentFrom(src)
		if err != nil {
			return err
		}
		loader, err := ramdisk.FindIPXE(append(ipxe, ramdisk.IPXEDir)...)
		if err != nil {
			return err
		}
		stub, err := ramdisk.StubFrom(src)
		if err != nil {
			return err
		}
		m, err := ramdisk.Build(cmd.Context(), ramdisk.Config{KernelDeb: kernel, FirmwareDebs: firmware, Flavour: flavour, Agent: agent, Loader: loader, Stub: stub, Out: out,
			Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }})
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: kernel %s, %d modules, %d bytes to boot\n", out, m.Kernel.Release, len(m.Modules), m.BootBytes())
		return nil
	}
	parent.AddCommand(cmd)
	return parent
}

// licensesCommand lists the third-party parts of this binary.
func licensesCommand() *cobra.Command {
	return &cobra.Command{Use: "licenses", Short: "List the third-party parts this binary carries and where their source is.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := site.Parts()
			if err != nil {
				return err
			}
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"items": parts})
			}
			for _, p := range parts {
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %-45s %-28s %s\n           %s\n", p.In, p.Name, p.Version, p.License, p.Source)
			}
			return nil
		}}
}
