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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command()
	if err := root.ExecuteContext(ctx); err != nil {
		cli.Fail(os.Stderr, err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "bcd", Short: "Bare-metal provisioning for one site, in one binary.", SilenceErrors: true, SilenceUsage: true, Version: version}
	root.AddGroup(&cobra.Group{ID: "host", Title: "On the jump host:"}, &cobra.Group{ID: "client", Title: "From anywhere, through the API:"})
	root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddCommand(hostCommands()...)
	root.AddCommand(cli.Commands()...)
	return root
}
