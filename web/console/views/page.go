package views

import (
	"net/url"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
)

// Page is what the frame around every page shows.
type Page struct {
	Title    string
	Here     string // path of the navigation entry
	Who      *access.Identity
	Site     string
	Warnings int    // problems under Health
	Notice   string // what was just done
	Err      *app.Error
	Form     url.Values // what was sent, when Err refused it
	Scope    string     // of the form now rendered: tells apart the fields of several forms on a page
	Refresh  bool       // without script, load again every few seconds
}

// Can reports whether the reader holds a permission.
func (p Page) Can(perm app.Permission) bool { return p.Who.Can(perm) }

// scope gives the page one of its forms sees: ids of its own, and what was sent only if it was sent from this form.
func (p Page) scope(name string, mine bool) Page {
	p.Scope = name + "-"
	if !mine {
		p.Form, p.Err = nil, nil
	}
	return p
}

// sent reports whether the form of a name was sent.
func (p Page) sent(form string) bool { return p.Form.Get("form") == form }

func (p Page) field(name string) string { return "f-" + p.Scope + name }
func (p Page) under(name string) string { return "h-" + p.Scope + name }

// Val is what a field shows: what was sent before, else the standard.
func (p Page) Val(name, standard string) string {
	if v, ok := p.Form[name]; ok && len(v) > 0 {
		return v[0]
	}
	return standard
}

// On reports whether a box is ticked.
func (p Page) On(name string, standard bool) bool {
	if p.Form != nil {
		return p.Form.Get(name) != ""
	}
	return standard
}

// within reports whether an error at member is about one of these: a member by its name, or with a star at its end it and
// whatever is inside it.
func within(of []string, member string) bool {
	for _, name := range of {
		name, open := strings.CutSuffix(name, "*")
		rest, begins := strings.CutPrefix(member, name)
		if begins && (rest == "" || open && (rest[0] == '.' || rest[0] == '[')) {
			return true
		}
	}
	return false
}

// Wrong is the message of the error at a field that stands for these members of the API, "" when it is elsewhere.
func (p Page) Wrong(of ...string) string {
	if p.Err == nil || p.Err.Field == "" || !within(of, p.Err.Field) {
		return ""
	}
	text := p.Err.Message
	if p.Err.Field != strings.TrimSuffix(of[0], "*") {
		text = p.Err.Field + " " + text
	}
	if p.Err.WayOut != "" {
		return text + ": " + p.Err.WayOut
	}
	return text
}

func (p Page) wrong(i Input) string { return p.Wrong(append([]string{i.Name + "*"}, i.Of...)...) }

// Input describes a field of a form. Name is the API's name of the field, so that errors find it; Of lists the further
// members of the API that the field stands for, as within takes them.
type Input struct {
	Of                                                []string
	Name, Label, Hint, Value, Type, Placeholder, Auto string
	Required, Mono, Wide                              bool
	Min                                               string
}

func (i Input) kind() string {
	if i.Type == "" {
		return "text"
	}
	return i.Type
}

// Option is one choice.
type Option struct{ Value, Label string }

type navItem struct {
	Path, Label string
	Need        app.Permission
}

type navGroup struct {
	Label string
	Items []navItem
}

var navigation = []navGroup{
	{"", []navItem{{"/", "Overview", app.PermMachinesRead}, {"/machines", "Machines", app.PermMachinesRead},
		{"/discovered", "Discovered", app.PermMachinesRead}, {"/images", "Images", app.PermImagesRead},
		{"/workflows", "Workflows", app.PermWorkflowsRead}, {"/approvals", "Approvals", app.PermMachinesRead}, {"/events", "Events", app.PermEventsRead}}},
	{"Site", []navItem{{"/network", "Network", app.PermNetworkRead}, {"/drivers", "Drivers & plugins", app.PermDriversRead},
		{"/profiles", "Profiles & pools", app.PermProfilesRead}}},
	{"Appliance", []navItem{{"/access", "Access", app.PermUsersRead}, {"/settings", "Settings", app.PermSettingsRead},
		{"/health", "Health", app.PermSettingsRead}}},
}

func title(p Page) string {
	t := p.Title + " · bcd"
	if p.Site != "" {
		t += " · " + p.Site
	}
	return t
}
