package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/better-compute/bcd/web/api"
)

// saying is how a person is told that a route has changed something: the thing, what became of it, and what comes next. The
// whole thing is what --json is for.
type saying struct {
	did  string   // "enrolled"
	show []string // members of the answer that say how it stands now, as paths into the JSON
	next string   // a command; %s is the thing
	of   string   // the member that holds the thing; empty: it is the whole answer
	say  string   // a member printed as it is, on a line of its own
}

// sayings are the routes that change something, by id.
var sayings = map[string]saying{
	"discoveries.accept":      {did: "enrolled", show: []string{"state", "power"}, next: "bcd machine commission %s --wait"},
	"discoveries.delete":      {did: "forgotten; it is listed again when it netboots"},
	"drivers.pick":            {did: "picked", next: "bcd driver list"},
	"images.import":           {did: "is being imported", show: imageMembers, next: "bcd image watch %s"},
	"images.upload":           {did: "stored", show: imageMembers, next: "bcd machine deploy <machine> --image %s --wait"},
	"images.delete":           {did: "deleted"},
	"leases.delete":           {did: "freed"},
	"machines.change":         {did: "changed", show: []string{"state", "pool", "hardwareProfile", "bootOrder"}, next: "bcd machine show %s"},
	"machines.confirm-mac":    {did: "port confirmed", show: []string{"state"}},
	"machines.enroll":         {did: "enrolled", show: []string{"state", "power"}, next: "bcd machine commission %s --wait"},
	"machines.forget-kexec":   {did: "kexec forgotten", next: "bcd machine kexec %s"},
	"machines.network.put":    {did: "network stored for its next deploy"},
	"machines.network.delete": {did: "network cleared: the next system asks DHCP on every port"},
	"machines.set-bmc":        {did: "BMC changed", show: []string{"bmc.driver", "bmc.address", "power"}, of: "machine"},
	"plugins.restart":         {did: "restarting", next: "bcd plugin list"},
	"pools.put":               {did: "saved", show: []string{"policy.hardwareProfile"}, next: "bcd machine set <machine> --pool %s"},
	"pools.delete":            {did: "deleted"},
	"ports.answer":            {did: "answered", show: []string{"state"}},
	"ports.forget":            {did: "forgotten; it is asked again when the port is seen again"},
	"profiles.put":            {did: "saved", next: "bcd machine set <machine> --hardwareProfile %s"},
	"profiles.delete":         {did: "deleted"},
	"secrets.put":             {did: "stored", next: "secret://root/%s names it"},
	"secrets.delete":          {did: "deleted"},
	"settings.change":         {did: "changed", show: []string{"siteName"}},
	"subnets.create":          {did: "added", show: []string{"mode", "poolStart", "poolEnd"}, next: "bcd subnet mode %s full, proxy or http"},
	"subnets.change":          {did: "changed", show: []string{"mode", "poolStart", "poolEnd"}},
	"subnets.mode":            {did: "mode changed", show: []string{"mode"}},
	"subnets.rivals":          {did: "looked for other DHCP servers beside it", show: []string{"mode"}},
	"subnets.reserve":         {did: "address reserved"},
	"subnets.unreserve":       {did: "reservation deleted"},
	"subnets.delete":          {did: "deleted"},
	"tokens.create":           {did: "made; its value is shown this once", show: []string{"expires"}, say: "value"},
	"tokens.delete":           {did: "revoked"},
	"users.create":            {did: "added", show: []string{"role"}, next: "bcd login <url> -u %s"},
	"users.change":            {did: "changed", show: []string{"role", "disabled"}},
	"users.delete":            {did: "deleted, with its sessions and tokens"},
	"workflows.retry":         {did: "taken up again", show: workflowMembers, next: "bcd workflow watch %s"},
	"workflows.mark-done":     {did: "taken up again", show: workflowMembers, next: "bcd workflow watch %s"},
	"workflows.abort":         {did: "is being aborted", show: workflowMembers, next: "bcd workflow watch %s"},
}

var (
	imageMembers    = []string{"state", "format", "rawBytes", "layout.table", "reason"}
	workflowMembers = []string{"verb", "state", "error.message"}
)

// tell says in a few lines what became of something. path are the arguments that named it. It is false when the route only
// looks, so that its answer is what was asked for.
func tell(out io.Writer, rt api.Route, path []string, answer json.RawMessage) bool {
	s, ok := sayings[rt.ID]
	if !ok || rt.Method == http.MethodGet {
		return false
	}
	var whole map[string]any
	if json.Unmarshal(answer, &whole) != nil && len(answer) > 0 {
		return false
	}
	v := whole
	if s.of != "" {
		if v, ok = whole[s.of].(map[string]any); !ok { // it was only a test
			return false
		}
	}
	name, thing := called(v, path)
	fmt.Fprintf(out, "%s: %s%s\n", Printable(strings.TrimSpace(rt.CLI.Noun+" "+thing)), s.did, stands(v, s.show))
	tellNotes(out, rt.ID, v)
	if s.say != "" {
		fmt.Fprintln(out, Printable(cell(v, s.say)))
	}
	if s.next != "" {
		fmt.Fprintf(out, "  next: %s\n", strings.ReplaceAll(s.next, "%s", Printable(name)))
	}
	return true
}

// tellNotes says what an answer warns of: what is not as it should be about a subnet, and who else answers there.
func tellNotes(out io.Writer, id string, v map[string]any) {
	notes, _ := v["notes"].([]any)
	for _, note := range notes {
		fmt.Fprintf(out, "  %s\n", Printable(fmt.Sprint(note)))
	}
	rivals, _ := v["rivals"].([]any)
	for _, r := range rivals {
		fmt.Fprintf(out, "  %s answers DHCP too (%s, on %s)\n", Printable(cell(r, "server")), Printable(cell(r, "mac")), Printable(cell(r, "interface")))
	}
	if id == "subnets.rivals" && len(rivals) == 0 {
		fmt.Fprintln(out, "  none answered")
	}
}

// called is what a thing goes by, and that with its id where the two differ.
func called(v map[string]any, path []string) (name, thing string) {
	id := cell(v, "id")
	name = cmp.Or(cell(v, "name"), id, strings.Join(path, " "))
	switch {
	case cell(v, "cidr") != "":
		return id, cell(v, "cidr") + " (" + id + ")"
	case id != "" && id != name:
		return name, name + " (" + id + ")"
	}
	return name, name
}

// stands is how a thing stands now, member by member.
func stands(v map[string]any, members []string) string {
	var b strings.Builder
	for _, m := range members {
		if x := cell(v, m); x != "" {
			fmt.Fprintf(&b, "; %s %s", strings.ToLower(heading(m)), Printable(x))
		}
	}
	return b.String()
}
