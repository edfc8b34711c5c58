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

// kexecCommand shows how kexec went on machines of a model.
func kexecCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kexec <machine>", Short: "Show how kexec went on machines of the same model, which decides how the next deploy starts its system.",
		Example: "  bcd machine kexec node-1\n  bcd machine forget-kexec node-1\n  bcd machine deploy node-1 --image debian-12 --boot kexec", Args: cobra.ExactArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		raw, err := c.Do(cmd.Context(), http.MethodGet, "/api/v1/machines/"+url.PathEscape(args[0])+"/kexec", nil, nil)
		if err != nil {
			return err
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), string(raw))
			return err
		}
		var k api.KexecReport
		if err := json.Unmarshal(raw, &k); err != nil {
			return fmt.Errorf("reading how kexec went: %w", err)
		}
		printKexec(cmd.OutOrStdout(), args[0], k)
		return nil
	}
	return cmd
}

// printKexec writes of a machine what is known, and a line for each trial. All text in it is hostile.
func printKexec(out io.Writer, machine string, k api.KexecReport) {
	model := k.Make
	if strings.HasPrefix(model, "machine m-") { // named by its id
		model = "of no known model"
	}
	fmt.Fprintf(out, "%s (%s): %s\n", Printable(machine), Printable(model), Printable(k.Sentence))
	for _, t := range k.Trials {
		fmt.Fprintf(out, "  %s  %-8s  %s on %s", t.Time.Local().Format("2006-01-02 15:04:05"), Printable(string(t.Outcome)), Printable(t.Image), Printable(t.Machine))
		if t.Sentence != "" {
			fmt.Fprintf(out, ": %s", Printable(t.Sentence))
		}
		fmt.Fprintln(out)
	}
}
