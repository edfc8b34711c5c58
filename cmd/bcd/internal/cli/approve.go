package cli

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// approveCommand decides about a batch that waits: the short form of "approval decide".
func approveCommand() *cobra.Command {
	var in api.ApprovalInput
	var wait bool
	cmd := &cobra.Command{Use: "approve <approval>", GroupID: "client", Short: "Approve a batch that another operator asked for.", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&in.Deny, "deny", false, "refuse it")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until the workflows of an approved batch end, showing their steps")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		raw, err := c.Do(cmd.Context(), "POST", "/api/v1/approvals/"+url.PathEscape(args[0])+"/decision", nil, in)
		if err != nil {
			return err
		}
		return decided(cmd, c, raw, wait)
	}
	return cmd
}

// decided says what was decided about a batch, and what became of each of its machines, as of a batch that needed nobody.
func decided(cmd *cobra.Command, c *client.Client, answer json.RawMessage, wait bool) error {
	var ap app.Approval
	if err := json.Unmarshal(answer, &ap); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON && (!wait || ap.State != app.ApprovalApproved) {
		return show(cmd, "approval", answer)
	}
	if ap.State != app.ApprovalApproved {
		fmt.Fprintf(cmd.OutOrStdout(), "approval %s: %s; nothing was done to its %d machines\n", Printable(ap.ID), ap.State, len(ap.Machines))
		return nil
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); !asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "approval %s: %s\n", Printable(ap.ID), ap.State)
	}
	results := api.VerbResults{Items: []api.VerbResult{}}
	var names []string
	for _, m := range ap.Machines {
		names = append(names, m.Name)
		results.Items = append(results.Items, api.VerbResult{MachineID: m.ID, WorkflowID: m.WorkflowID, Error: m.Error})
	}
	raw, err := json.Marshal(results)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return verbDone(cmd, c, ap.Operation, names, raw, wait)
}
