package console

import "slices"

func get(path string, h func(*Console, *request) error) Page {
	return Page{Method: "GET", Path: path, handle: h}
}

func post(path string, h func(*Console, *request) error) Page {
	return Page{Method: "POST", Path: path, handle: h}
}

func open(p Page) Page { p.Open = true; return p }
func raw(p Page) Page  { p.Raw = true; return p }

// Pages lists every address of the console.
func (c *Console) Pages() []Page {
	return slices.Concat(entryPages(), overviewPages(), machinePages(), bmcPages(), systemNetworkPages(), workflowPages(), certificatePages(), imagePages(), networkPages(), pluginPages(), profilePages(), approvalPages(), sitePages())
}

func entryPages() []Page {
	return []Page{
		open(get("/setup", setupForm)), open(post("/setup", setup)),
		open(get("/login", loginForm)), open(post("/login", login)), open(post("/logout", logout)),
	}
}

func overviewPages() []Page {
	return []Page{get("/", overview), get("/health", health), get("/events", events)}
}
