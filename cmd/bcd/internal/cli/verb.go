package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// verbDone tells what became of a verb on each machine, waiting for the workflows when asked to. It is an error when it
// failed on one of them, whatever form the answer is shown in. names are what the machines were called by; nil: by id.
func verbDone(cmd *cobra.Command, c *client.Client, verb string, names []string, answer json.RawMessage, wait bool) error {
	results, approval, err := verbResults(answer)
	if err != nil {
		return err
	}
	asJSON, _ := cmd.Flags().GetBool("json")
	if approval != nil {
		if asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(answer)))
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s\n  → another operator runs: bcd approve %s\n", Printable(approval.Reason), approval.ID)
		return nil
	}
	out := cmd.OutOrStdout()
	if asJSON {
		out = cmd.ErrOrStderr()
	}
	var failed []string
	for i, r := range results {
		name := r.MachineID
		if len(names) == len(results) {
			name = names[i]
		}
		name = Printable(name)
		switch {
		case r.Error != nil:
			Fail(out, name+": ", r.Error)
		case r.WorkflowID == "":
			fmt.Fprintf(out, "%s: %s done\n", name, verb)
		case !wait:
			fmt.Fprintf(out, "%s: %s started; bcd workflow watch %s\n", name, verb, r.WorkflowID)
		default:
			fmt.Fprintf(out, "%s: %s\n", name, verb)
			if err := watch(cmd.Context(), c, out, r.WorkflowID); err != nil {
				Fail(out, name+": ", err)
				r.Error, _ = app.AsError(err)
				failed = append(failed, name)
			}
			continue
		}
		if r.Error != nil {
			failed = append(failed, name)
		}
	}
	if asJSON {
		fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(answer)))
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	if len(failed) > 0 {
		return app.Errorf(app.Conflict, "verb-failed", "%s failed on %d of %d machines: %s", verb, len(failed), len(results), strings.Join(failed, ", ")).
			Do("see bcd machine show %s", failed[0])
	}
	return nil
}

// verbResults reads the answer of one machine's route or of the batch's.
func verbResults(answer json.RawMessage) ([]api.VerbResult, *app.Approval, error) {
	var many api.VerbResults
	if err := json.Unmarshal(answer, &many); err == nil && many.Items != nil {
		return many.Items, many.Approval, nil
	}
	var one api.VerbResult
	if err := json.Unmarshal(answer, &one); err != nil {
		return nil, nil, fmt.Errorf("reading the answer: %w", err)
	}
	return []api.VerbResult{one}, nil, nil
}
