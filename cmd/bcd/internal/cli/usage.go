package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
)

// Exit codes of bcd.
const (
	ExitFailed      = 1   // it was refused, or it failed
	ExitUsage       = 2   // the command line makes no sense
	ExitUnavailable = 3   // the appliance cannot be reached, or wants a login
	ExitInterrupted = 130 // by Ctrl-C, as shells have it
)

// reasonUsage marks errors in the command line itself.
const reasonUsage = "usage"

// usageError is a mistake in a command line, with the line as it should be.
func usageError(cmd *cobra.Command, format string, args ...any) error {
	return app.Errorf(app.InvalidInput, reasonUsage, "%s: %s", cmd.CommandPath(), fmt.Sprintf(format, args...)).
		Do("%s; see %s --help", cmd.UseLine(), cmd.CommandPath())
}

// Group makes a command that only holds others: without one of them it shows its help, with an unknown one it is an error.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		e := app.Errorf(app.InvalidInput, reasonUsage, "%s has no command %q", cmd.CommandPath(), args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return e.Do("did you mean %s %s?", cmd.CommandPath(), near[0])
		}
		return e.Do("see %s --help", cmd.CommandPath())
	}
	return cmd
}

// Usage makes what cobra finds wrong with a command line, below root, an error like ours.
func Usage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, "%v", err) })
	for _, c := range root.Commands() {
		Usage(c)
	}
	if check := root.Args; check != nil {
		root.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if _, ours := app.AsError(err); err == nil || ours {
				return err
			}
			return usageError(cmd, "%v", err)
		}
	}
	root.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmd.ValidateRequiredFlags(); err != nil {
			return usageError(cmd, "%v", err)
		}
		return nil
	}
}

// ExitCode is the exit code of a command that ended with err.
func ExitCode(err error) int {
	e, ok := app.AsError(err)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case !ok:
		return ExitFailed
	case e.Reason == reasonUsage:
		return ExitUsage
	case e.Code == app.Unauthenticated, e.Reason == client.ReasonUnreachable, e.Reason == client.ReasonCutOff:
		return ExitUnavailable
	}
	return ExitFailed
}

// Fail writes an error for a person, with text before it.
func Fail(out io.Writer, before string, err error) {
	e, ok := app.AsError(err)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(out, "%sinterrupted\n", before)
		return
	case !ok:
		fmt.Fprintf(out, "%s%s\n", before, Printable(err.Error()))
		return
	}
	where := ""
	switch e.Field {
	case "":
	case "ids": // of a batch: on the command line they are the machines
		where = "machines: "
	default:
		where = Printable(e.Field) + ": "
	}
	fmt.Fprintf(out, "%s%s%s\n", before, where, Printable(e.Message))
	if e.WayOut != "" {
		fmt.Fprintf(out, "  → %s\n", Printable(e.WayOut))
	}
}
