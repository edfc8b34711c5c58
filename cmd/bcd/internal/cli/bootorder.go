package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/web/api"
)

// bootOrderCommand shows the boot order of a machine.
func bootOrderCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "boot-order <machine>", Short: "Show the boot order of a machine, who keeps it, and who changed it last.",
		Example: "  bcd machine boot-order node-1\n  bcd machine set node-1 --bootOrder network-first", Args: cobra.ExactArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		raw, err := c.Do(cmd.Context(), http.MethodGet, "/api/v1/machines/"+url.PathEscape(args[0])+"/boot-order", nil, nil)
		if err != nil {
			return err
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), string(raw))
			return err
		}
		var b api.BootOrderReport
		if err := json.Unmarshal(raw, &b); err != nil {
			return fmt.Errorf("reading the boot order: %w", err)
		}
		printBootOrder(cmd.OutOrStdout(), b)
		return nil
	}
	return cmd
}

// printBootOrder writes the order, a line for each entry, and what there is to know of it. All text in it is hostile.
func printBootOrder(out io.Writer, b api.BootOrderReport) {
	if v := b.View(); v != nil {
		fmt.Fprintf(out, "read during %s, %s\n", Printable(v.During), v.Time.Local().Format("2006-01-02 15:04:05"))
	}
	for i, w := range b.Words {
		fmt.Fprintf(out, "%3d  %s\n", i+1, Printable(w))
	}
	if len(b.Words) == 0 {
		fmt.Fprintln(out, "no order could be read")
	}
	fmt.Fprintf(out, "wanted: %s (%s)\n", b.Policy, Printable(b.PolicyReason))
	fmt.Fprintf(out, "kept by: %s, because %s\n", b.Writer, Printable(b.WriterReason))
	if c := b.Changed; c != nil {
		fmt.Fprintf(out, "changed last by %s, %s: %s\n", c.By, c.Time.Local().Format("2006-01-02 15:04:05"), Printable(strings.Join(c.What, "; ")))
	}
	if e := b.Problem; e != nil {
		fmt.Fprintf(out, "NOT AS IT SHOULD BE: %s\n  what to do: %s\n", Printable(e.Message), Printable(e.WayOut))
	}
	for _, n := range b.Notes {
		fmt.Fprintf(out, "note: %s\n", Printable(n))
	}
}
