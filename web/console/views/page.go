package views

import (
	"net/url"

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

// Wrong is the message of the error at a field, "" when it is elsewhere.
func (p Page) Wrong(name string) string {
	if p.Err == nil || p.Err.Field != name {
		return ""
	}
	if p.Err.WayOut != "" {
		return p.Err.Message + ": " + p.Err.WayOut
	}
	return p.Err.Message
}

// Input describes a field of a form. Name is the API's name of the field, so that errors find it.
type Input struct {
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
