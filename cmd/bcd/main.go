//go:debug x509negativeserial=1

// Command bcd is the bare-metal provisioning appliance and its command line: one file.
//
// BMCs with certificates of negative serial number are in use, and Go refuses those unless told by the line above.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/cmd/bcd/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	if code, ok := hidden(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(run())
}

// run gives the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err != nil {
		cli.Fail(os.Stderr, "bcd: ", err)
	}
	return cli.ExitCode(err)
}

func command() *cobra.Command {
	root := cli.Group(&cobra.Command{Use: "bcd", Short: "Bare-metal provisioning for one site, in one binary.", SilenceErrors: true, SilenceUsage: true, Version: version,
		Long: "Bare-metal provisioning for one site, in one binary.\n\n" +
			"Exit codes: 0 done, 1 refused or failed, 2 wrong command line, 3 the appliance cannot be reached or wants a login, 130 interrupted."})
	root.AddGroup(&cobra.Group{ID: "host", Title: "On the jump host:"}, &cobra.Group{ID: "client", Title: "From anywhere, through the API:"})
	root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddCommand(hostCommands()...)
	root.AddCommand(cli.Commands()...)
	if c, _, err := root.Find([]string{"plugin"}); err == nil {
		c.AddCommand(pluginCommands(os.Geteuid())...)
	}
	cli.Usage(root)
	return root
}
