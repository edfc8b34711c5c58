// Package cli makes the client half of bcd's command line out of the API's route table: a route's noun and verb become a
// command, its path parameters arguments, its query and body fields flags.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// nouns says what each noun is, in the order of the help.
var nouns = map[string]string{
	"machine": "Machines: enroll, commission, deploy, release", "discovery": "Machines that netbooted and nobody enrolled",
	"image": "Operating-system images", "workflow": "What is being done to machines", "event": "What happened",
	"subnet": "Networks the appliance answers on", "lease": "Addresses given out", "driver": "Registered drivers",
	"profile": "Hardware profiles", "pool": "Pools of machines", "secret": "Sealed secrets", "user": "People", "token": "API tokens",
	"health": "What is not as it should be", "setting": "Settings", "session": "Who you are", "network": "Networks",
}

// special lists the routes whose commands are written by hand, in this package.
var special = map[string]bool{"session.login": true, "session.logout": true, "images.upload": true, "events.stream": true}

// Commands gives the client commands.
func Commands() []*cobra.Command {
	byNoun := map[string]*cobra.Command{}
	var out []*cobra.Command
	parent := func(noun string) *cobra.Command {
		if byNoun[noun] == nil {
			byNoun[noun] = &cobra.Command{Use: noun, Short: nouns[noun], GroupID: "client"}
			out = append(out, byNoun[noun])
		}
		return byNoun[noun]
	}
	for _, rt := range api.Routes() {
		if rt.CLI.Noun != "" && !special[rt.ID] {
			parent(rt.CLI.Noun).AddCommand(command(rt))
		}
	}
	parent("image").AddCommand(uploadCommand())
	parent("event").AddCommand(followCommand())
	parent("machine").AddCommand(applyCommand())
	parent("workflow").AddCommand(watchCommand())
	return append(out, loginCommand(), logoutCommand())
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// command makes the command of one route.
func command(rt api.Route) *cobra.Command {
	params := pathParam.FindAllStringSubmatch(rt.Path, -1)
	use := rt.CLI.Verb
	for _, p := range params {
		use += " <" + p[1] + ">"
	}
	batch := rt.CLI.Noun == "machine" && strings.HasPrefix(rt.Path, "/api/v1/machines/{id}/") && rt.Method == "POST" && len(params) == 1 && rt.CLI.Verb != "confirm-mac"
	if batch {
		use += "..."
	}
	cmd := &cobra.Command{Use: use, Short: rt.Summary, Args: cobra.ExactArgs(len(params))}
	if batch {
		cmd.Args = cobra.MinimumNArgs(1)
	}
	query := map[string]*string{}
	for _, p := range rt.Query {
		query[p.Name] = cmd.Flags().String(p.Name, "", p.Help)
	}
	body := bodyFlags(cmd, rt.Request)
	wait := new(bool)
	if batch || rt.Response != nil && hasField(rt.Response, "workflowId") {
		wait = cmd.Flags().BoolP("wait", "w", false, "wait until the workflow ends, showing its steps")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := body(cmd.InOrStdin())
		if err != nil {
			return err
		}
		path, in := target(rt, params, args, in, batch)
		values := url.Values{}
		for name, v := range query {
			if *v != "" {
				values.Set(name, *v)
			}
		}
		c, err := connect()
		if err != nil {
			return err
		}
		answer, err := c.Do(cmd.Context(), rt.Method, path, values, in)
		if err != nil {
			return err
		}
		if *wait {
			return waitAll(cmd.Context(), c, cmd.OutOrStdout(), answer)
		}
		return show(cmd, rt.CLI.Noun, answer)
	}
	return cmd
}

// target fills in the path. Several machines go to the batch route, whose answer names each.
func target(rt api.Route, params [][]string, args []string, in any, batch bool) (string, any) {
	if batch && len(args) > 1 {
		verb := rt.Path[strings.LastIndex(rt.Path, "/")+1:]
		return "/api/v1/machines/actions/" + verb, map[string]any{"ids": args, "options": orEmpty(in)}
	}
	path := rt.Path
	for i, p := range params {
		path = strings.Replace(path, p[0], url.PathEscape(args[i]), 1)
	}
	return path, in
}

func orEmpty(in any) any {
	if in == nil {
		return map[string]any{}
	}
	return in
}

func hasField(t reflect.Type, name string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if n, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); n == name {
			return true
		}
	}
	return false
}

func connect() (*client.Client, error) {
	l, err := client.Load()
	if err != nil {
		return nil, err
	}
	return client.New(l)
}

// show prints an answer: as it came with --json, else for people.
func show(cmd *cobra.Command, noun string, answer json.RawMessage) error {
	if len(strings.TrimSpace(string(answer))) == 0 {
		return nil
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(answer)))
		return err
	}
	return Print(cmd.OutOrStdout(), noun, answer)
}

// waitAll follows every workflow an answer names, one after the other: they run side by side on the appliance.
func waitAll(ctx context.Context, c *client.Client, out io.Writer, answer json.RawMessage) error {
	var one api.VerbResult
	var many api.VerbResults
	if err := json.Unmarshal(answer, &many); err != nil || many.Items == nil {
		if err := json.Unmarshal(answer, &one); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		many.Items = []api.VerbResult{one}
	}
	var failed []string
	for _, r := range many.Items {
		if r.Error != nil {
			fmt.Fprintf(out, "%s: %v\n", r.MachineID, r.Error)
			failed = append(failed, r.MachineID)
			continue
		}
		if r.WorkflowID == "" {
			continue
		}
		if err := watch(ctx, c, out, r.WorkflowID); err != nil {
			fmt.Fprintf(out, "%s: %v\n", r.MachineID, err)
			failed = append(failed, r.MachineID)
		}
	}
	if len(failed) > 0 {
		return app.Errorf(app.Conflict, "workflow-failed", "it failed on %d of %d machines: %s", len(failed), len(many.Items), strings.Join(failed, ", ")).
			Do("see bcd machine show")
	}
	return nil
}
