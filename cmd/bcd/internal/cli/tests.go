package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// testsCommand shows what the commissioning tests of a machine found.
func testsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tests <machine>", Short: "Show what the commissioning tests of a machine found, with values and limits.",
		Example: "  bcd machine tests node-1\n  bcd machine commission node-1 --test cpu,memory --wait", Args: cobra.ExactArgs(1)}
	logs := cmd.Flags().Bool("log", false, "show their logs too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		raw, err := c.Do(cmd.Context(), http.MethodGet, "/api/v1/machines/"+url.PathEscape(args[0])+"/tests", nil, nil)
		if err != nil {
			return err
		}
		if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), string(raw))
			return err
		}
		var t api.Tests
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("reading the tests: %w", err)
		}
		printTests(cmd.OutOrStdout(), t, *logs)
		return nil
	}
	return cmd
}

// printTests writes one line for each test, its values below it. All text in them is hostile.
func printTests(out io.Writer, t api.Tests, logs bool) {
	fmt.Fprintf(out, "tested by workflow %s, %s\n", t.WorkflowID, t.Started.Local().Format("2006-01-02 15:04:05"))
	for _, x := range t.Items {
		fmt.Fprintf(out, "\n%s  %s (%s)%s\n", strings.ToUpper(standing(x)), Printable(x.Title), x.Test, took(x))
		if x.Message != "" {
			fmt.Fprintf(out, "  %s\n", Printable(x.Message))
		}
		for _, s := range x.Skipped {
			fmt.Fprintf(out, "  not tested: %s\n", Printable(s))
		}
		w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
		for _, v := range x.Values {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", Printable(strings.TrimSpace(v.Subject+" "+v.Name)), Printable(measured(v)), Printable(limitOf(v)))
		}
		_ = w.Flush() // a terminal that went away has nobody to tell
		if logs && x.Log != "" {
			fmt.Fprintf(out, "  log:\n    %s\n", strings.ReplaceAll(Printable(strings.TrimSpace(x.Log)), "\n", "\n    "))
		}
	}
}

func standing(x api.MachineTest) string {
	if x.Result == "" {
		return string(x.State)
	}
	return x.Result
}

func took(x api.MachineTest) string {
	switch {
	case x.State == workflow.StepRunning && x.Progress != nil && x.Progress.Total > 0:
		return fmt.Sprintf(", %d%%", 100*x.Progress.Done/x.Progress.Total)
	case x.Ended.After(x.Started) && !x.Started.IsZero():
		return ", " + app.Took(x.Ended.Sub(x.Started))
	}
	return ""
}

// measured writes a value for people.
func measured(v agentv1.TestValue) string {
	if v.Text != "" {
		return v.Text
	}
	return strings.TrimSpace(fmt.Sprintf("%.10g %s", v.Value, v.Unit))
}

func limitOf(v agentv1.TestValue) string {
	switch {
	case v.Failed && v.Limit != "":
		return "FAILED: " + v.Limit + " is wanted"
	case v.Failed:
		return "FAILED"
	}
	return v.Limit
}
