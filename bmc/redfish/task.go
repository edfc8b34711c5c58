package redfish

import (
	"net/http"
	"slices"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// taskReads bounds the reads of a task, pollEvery apart.
const taskReads = 90

// follow waits for the end of the task that an answer of 202 names. On iBMC a failure shows in the task alone, with its
// messages in a list or as one object.
func (d *Driver) follow(ctx *driver.Context, c *conn, r *response, what string) error {
	if r.status != http.StatusAccepted {
		return nil
	}
	link := taskOf(r)
	for range taskReads {
		t, err := c.find(ctx, link)
		if err != nil || t == nil {
			return err // a task that is gone has ended; reading back decides
		}
		switch state := t.text("TaskState"); {
		case state == "Completed", state == "":
			return t.failure(what)
		case slices.Contains([]string{"Exception", "Killed", "Cancelled", "Interrupted"}, state):
			if err := t.failure(what); err != nil {
				return err
			}
			return driver.Errorf(driver.CodeBMCError, "the BMC gave up %s: %s", what, clip(state, 40))
		}
		if err := d.pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return driver.Errorf(driver.CodeTimeout, "the BMC is still busy with %s", what).Again()
}

// taskOf is the task's own resource: the body names it, where the Location may be a monitor that goes away.
func taskOf(r *response) string {
	if d, err := parseDocument(r); err == nil && strings.Contains(d.text("@odata.type"), "Task") {
		if link := d.text("@odata.id"); link != "" {
			return link
		}
	}
	return relative(r.path, r.header.Get("Location"))
}

// failure is the error of a task that did not end well; nil when its status is good.
func (d *document) failure(what string) error {
	status := firstOf(d.text("TaskStatus"), "OK")
	if strings.EqualFold(status, "OK") && !slices.Contains([]string{"Exception", "Killed", "Cancelled"}, d.text("TaskState")) {
		return nil
	}
	f := fault{}
	switch list := d.get("Messages").(type) {
	case []any:
		for _, m := range list[:min(len(list), 8)] {
			f.add(m)
		}
	default:
		f.add(list)
	}
	if len(f.messages) == 0 {
		f.add(status)
	}
	return driver.Errorf(driver.CodeBMCError, "the BMC failed at %s: %s", what, f.text())
}
