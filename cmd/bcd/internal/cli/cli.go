// Package cli makes the client half of bcd's command line out of the API's route table: a route's noun and verb become a
// command, its path parameters arguments, its query and body fields flags.
package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// nouns says what each noun is.
var nouns = map[string]string{
	"machine": "Machines: enroll, commission, deploy, release.", "discovery": "Machines that netbooted and nobody enrolled.",
	"image": "Operating-system images.", "workflow": "What is being done to machines.", "event": "What happened.",
	"subnet": "Networks the appliance answers on.", "lease": "Addresses given out.", "driver": "Registered drivers.", "plugin": "Driver plugins, each in a process of its own.",
	"approval": "Batches that wait for a second operator.", "port": "Questions about network ports that only a person can answer.",
	"profile": "Hardware profiles.", "pool": "Pools of machines.", "secret": "Sealed secrets.", "user": "People.", "token": "API tokens.",
	"health": "What is not as it should be.", "settings": "Settings of the site.", "session": "Who you are.", "version": "Version of the appliance.",
}

// examples show how commands are used, by the id of their route.
var examples = map[string]string{
	"machines.enroll": "  bcd machine enroll node-1 --bmc.driver redfish --bmc.address https://192.0.2.11 --bmc.credentials.username admin\n" +
		"  bcd machine enroll -f node-1.yaml",
	"machines.deploy": "  bcd machine deploy node-1 --image debian-12 --sshKeys @~/.ssh/id_ed25519.pub --wait\n" +
		"  bcd machine deploy node-1 node-2 node-3 --image debian-12 --disk.kind nvme",
	"machines.power":    "  bcd machine power on node-1 node-2",
	"machines.boot-iso": "  bcd machine boot-iso node-1 --image debian-12-netinst --wait\n  bcd machine exit-iso node-1 --installed",
	"machines.exit-iso": "  bcd machine exit-iso node-1\n  bcd machine exit-iso node-1 --installed",
	"machines.set-bmc": "  bcd machine set-bmc node-1 --address https://192.0.2.12 --test\n" +
		"  bcd machine set-bmc node-1 --driver redfish --address https://192.0.2.12 --credentials.username admin\n" +
		"  bcd machine set-bmc node-1 --credentialsRef secret://root/rack1-bmc",
	"machines.forget-kexec": "  bcd machine forget-kexec node-1\n  bcd machine kexec node-1",
	"ports.list":            "  bcd port list",
	"ports.answer":          "  bcd port list\n  bcd port answer pq-mfrggzdfmztwq2lk accept",
	"ports.forget":          "  bcd port forget pq-mfrggzdfmztwq2lk",
	"machines.override":     "  bcd machine override ready node-1 --reason 'the disk was replaced'",
	"machines.commission":   "  bcd machine commission node-1 --wait",
	"machines.query":        "  bcd machine query node-1 bios.getSettings",
	"subnets.create":        "  bcd subnet add 192.0.2.0/24 --poolStart 192.0.2.100 --poolEnd 192.0.2.199 --gateway 192.0.2.1",
	"images.import":         "  bcd image import debian-12 --url https://images.example/debian-12.qcow2 --sha256 … --wait",
	"secrets.put":           "  bcd secret set note --value\n  echo '{value: {username: admin, password: …}}' | bcd secret set bmc -f -",
}

// special lists the routes whose commands are written by hand, in this package.
var special = map[string]bool{"session.login": true, "session.logout": true, "images.upload": true, "events.stream": true, "machines.timeline": true, "discoveries.timeline": true, "machines.tests": true, "machines.boot-order": true, "machines.kexec": true, "machines.console": true}

// Commands gives the client commands.
func Commands() []*cobra.Command {
	byNoun := map[string]*cobra.Command{}
	var out []*cobra.Command
	parent := func(noun string) *cobra.Command {
		if byNoun[noun] == nil {
			byNoun[noun] = Group(&cobra.Command{Use: noun, Short: nouns[noun], GroupID: "client"})
			out = append(out, byNoun[noun])
		}
		return byNoun[noun]
	}
	for _, rt := range api.Routes() {
		if rt.CLI.Noun != "" && !special[rt.ID] {
			parent(rt.CLI.Noun).AddCommand(command(rt))
		}
	}
	parent("image").AddCommand(uploadCommand(), watchImageCommand())
	parent("event").AddCommand(followCommand())
	parent("machine").AddCommand(applyCommand(), timelineCommand(), testsCommand(), bootOrderCommand(), kexecCommand(), consoleCommand())
	parent("discovery").AddCommand(portTimelineCommand())
	parent("workflow").AddCommand(watchCommand())
	parent("profile").AddCommand(fileCommands("profile", portableProfile)...)
	parent("pool").AddCommand(fileCommands("pool", portablePool)...)
	return append(out, approveCommand(), loginCommand(), logoutCommand())
}

// call is the command of one route.
type call struct {
	rt     api.Route
	params []string // names of the path's parameters
	batch  bool     // takes several machines
	chosen *selection
	query  map[string]*string
	body   *body
	wait   bool
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// command makes the command of one route: the body's arguments stand after the path's, and before the machines of a batch.
func command(rt api.Route) *cobra.Command {
	c := &call{rt: rt, query: map[string]*string{}}
	for _, p := range pathParam.FindAllStringSubmatch(rt.Path, -1) {
		c.params = append(c.params, p[1])
	}
	verb, isVerb := strings.CutPrefix(rt.Path, "/api/v1/machines/{id}/")
	c.batch = isVerb && rt.Method == http.MethodPost && rt.ID == "machines."+verb && verb != "confirm-mac"
	cmd := &cobra.Command{Short: rt.Summary, Example: examples[rt.ID], RunE: c.run}
	for _, p := range rt.Query {
		c.query[p.Name] = cmd.Flags().String(p.Name, "", p.Help)
	}
	c.body = newBody(cmd, rt.Request, rt.Args)
	cmd.Use, cmd.Long = c.usage()
	cmd.Args = c.check
	if c.batch {
		c.chosen = newSelection(cmd)
	}
	switch {
	case c.batch, workflowRoute(rt):
		cmd.Flags().BoolVarP(&c.wait, "wait", "w", false, "wait until the workflow ends, showing its steps")
	case rt.ID == "approvals.decide":
		cmd.Flags().BoolVarP(&c.wait, "wait", "w", false, "wait until the workflows of an approved batch end, showing their steps")
	case rt.ID == "images.import":
		cmd.Flags().BoolVarP(&c.wait, "wait", "w", false, "wait until the image is ready or failed, showing how far it is")
	}
	return cmd
}

func (c *call) arguments() []argument {
	if c.body == nil {
		return nil
	}
	return c.body.args
}

// usage is the one-line form of the command, and its summary with what the arguments are.
func (c *call) usage() (use, long string) {
	var path, args []string
	for _, p := range c.params {
		if p == "id" {
			p = c.rt.CLI.Noun
		}
		path = append(path, "<"+p+">")
	}
	long = c.rt.Summary
	for _, a := range c.arguments() {
		args = append(args, "<"+a.path[0]+">")
		long += fmt.Sprintf("\n\n  <%s>  %s", a.path[0], a.doc)
	}
	if c.batch {
		return strings.Join(append(append([]string{c.rt.CLI.Verb}, args...), "{<machine>... | --label key=value}"), " "), long
	}
	return strings.Join(append(append([]string{c.rt.CLI.Verb}, path...), args...), " "), long
}

// check holds the arguments against the usage.
func (c *call) check(cmd *cobra.Command, given []string) error {
	least := len(c.params) + len(c.arguments())
	most := least
	switch {
	case c.batch && c.chosen.chosen():
		least = len(c.arguments())
		most = least
	case c.batch:
		most = len(given)
	case c.body.fromFile():
		least = len(c.params)
	}
	if len(given) < least || len(given) > most {
		return usageError(cmd, "it takes %s, %d were given", counted(least), len(given))
	}
	return nil
}

func counted(n int) string {
	if n == 1 {
		return "one argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

func (c *call) run(cmd *cobra.Command, given []string) error {
	path, members := given[:min(len(c.params), len(given))], given[min(len(c.params), len(given)):]
	if c.batch {
		n := len(c.arguments())
		members, path = given[:n], given[n:]
	}
	in, err := c.body.request(members)
	if err != nil {
		return err
	}
	target, in := c.target(path, in)
	values := url.Values{}
	for name, v := range c.query {
		if *v != "" {
			values.Set(name, *v)
		}
	}
	conn, err := connect()
	if err != nil {
		return err
	}
	answer, err := conn.Do(cmd.Context(), c.rt.Method, target, values, in)
	if err != nil {
		return err
	}
	if c.batch {
		return verbDone(cmd, conn, c.rt.CLI.Verb, path, answer, c.wait)
	}
	if c.wait {
		return c.follow(cmd, conn, answer)
	}
	return report(cmd, c.rt, append(slices.Clone(path), members...), answer)
}

// follow waits for what a route has begun.
func (c *call) follow(cmd *cobra.Command, conn *client.Client, answer json.RawMessage) error {
	switch c.rt.ID {
	case "images.import":
		var i app.Image
		if err := json.Unmarshal(answer, &i); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		return watchImage(cmd, conn, i.ID)
	case "approvals.decide":
		return decided(cmd, conn, answer, true)
	}
	var w workflow.Workflow
	if err := json.Unmarshal(answer, &w); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return watchShown(cmd, conn, w.ID)
}

// workflowRoute reports a route that sets a workflow going again, or ends it.
func workflowRoute(rt api.Route) bool {
	return rt.Method != http.MethodGet && rt.Response == reflect.TypeFor[*workflow.Workflow]()
}

// target fills in the path. Several machines go to the batch route, whose answer names each.
func (c *call) target(names []string, in any) (string, any) {
	if c.batch && (len(names) > 1 || c.chosen.chosen()) {
		return batchRoute(c.rt), c.chosen.request(names, in)
	}
	path := c.rt.Path
	for i, p := range c.params {
		path = strings.Replace(path, "{"+p+"}", url.PathEscape(names[i]), 1)
	}
	return path, in
}

func orEmpty(in any) any {
	if in == nil {
		return map[string]any{}
	}
	return in
}

func connect() (*client.Client, error) {
	l, err := client.Load()
	if err != nil {
		return nil, err
	}
	return client.New(l)
}

// report says what a route has done, in a few lines; with --json, and of a route that only looks, the whole answer. path are
// the arguments that named the thing.
func report(cmd *cobra.Command, rt api.Route, path []string, answer json.RawMessage) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); !asJSON && tell(cmd.OutOrStdout(), rt, path, answer) {
		return nil
	}
	return show(cmd, cmp.Or(listed[rt.CLI], rt.CLI.Noun), answer)
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
