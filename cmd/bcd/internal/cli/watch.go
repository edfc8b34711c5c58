package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
)

func watchCommand() *cobra.Command {
	return &cobra.Command{Use: "watch <id>", Short: "Follow a workflow until it ends.", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect()
			if err != nil {
				return err
			}
			return watchShown(cmd, c, args[0])
		}}
}

// watchShown watches, and with --json prints the workflow as it ended, whether it went well or not.
func watchShown(cmd *cobra.Command, c *client.Client, id string) error {
	asJSON, _ := cmd.Flags().GetBool("json")
	if !asJSON {
		return watch(cmd.Context(), c, cmd.OutOrStdout(), id)
	}
	err := watch(cmd.Context(), c, cmd.ErrOrStderr(), id)
	raw, last := c.Do(cmd.Context(), "GET", "/api/v1/workflows/"+id, nil, nil)
	if last == nil {
		last = show(cmd, "workflow", raw)
	}
	return cmp.Or(err, last)
}

// watch prints each step as it starts, moves and ends. It asks once a second and rides out an appliance that restarts.
func watch(ctx context.Context, c *client.Client, out io.Writer, id string) error {
	seen := map[string]string{}
	for {
		raw, err := c.Do(ctx, "GET", "/api/v1/workflows/"+id, nil, nil)
		switch {
		case err == nil:
			var w workflow.Workflow
			if err := json.Unmarshal(raw, &w); err != nil {
				return fmt.Errorf("reading the workflow: %w", err)
			}
			printSteps(out, &w, seen)
			if !w.State.Active() || w.State == workflow.Interrupted {
				return ended(out, &w)
			}
		case app.CodeOf(err) != app.Unavailable:
			return err
		case seen["!"] != err.Error():
			seen["!"] = err.Error()
			fmt.Fprintf(out, "  … %s; trying again\n", Printable(err.Error()))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func printSteps(out io.Writer, w *workflow.Workflow, seen map[string]string) {
	for _, s := range w.Steps {
		line := string(s.State)
		if s.State == workflow.StepRunning && s.Progress != nil {
			line = progressLine(s.Progress)
		}
		if s.State == workflow.StepWaiting || seen[s.ID] == line {
			continue
		}
		seen[s.ID] = line
		took := ""
		if !s.Ended.IsZero() && !s.Started.IsZero() {
			took = " (" + app.Took(s.Ended.Sub(s.Started)) + ")"
		}
		fmt.Fprintf(out, "  %-44s %s%s\n", Printable(s.Title), Printable(line), took)
	}
}

func progressLine(p *workflow.Progress) string {
	if p.Unit != "bytes" || p.Total == 0 {
		return p.Message
	}
	s := fmt.Sprintf("%3.0f %%  %s of %s", 100*float64(p.Done)/float64(p.Total), Bytes(p.Done), Bytes(p.Total))
	if p.Rate > 0 {
		s += fmt.Sprintf(", %s/s", Bytes(int64(p.Rate)))
	}
	if p.ETA > 0 {
		s += fmt.Sprintf(", %s left", time.Duration(p.ETA*float64(time.Second)).Round(time.Second))
	}
	return s
}

func ended(out io.Writer, w *workflow.Workflow) error {
	if w.State == workflow.Done {
		fmt.Fprintf(out, "%s done in %s\n", w.Verb, app.Took(w.Ended.Sub(w.Created)))
		return nil
	}
	if w.Error != nil {
		return w.Error
	}
	return app.Errorf(app.Conflict, "workflow-"+string(w.State), "the workflow is %s", w.State).Do("see bcd workflow show %s", w.ID)
}
