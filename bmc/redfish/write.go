package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	busyTries = 12
	busyPause = 5 * time.Second
)

// patch changes a resource with the ladder of entity tags that BMCs were seen to need: none, the header's as given, the
// body's, and each without its weak mark. AMI firmware demands one (428), Gigabyte compares weak and strong as different,
// Lenovo counts the body's only. A BMC that is busy for a moment is asked again.
func (d *Driver) patch(ctx context.Context, c *conn, doc *document, body any) (*response, error) {
	tags := doc.tags()
	for tries := 0; ; tries++ {
		header := http.Header{}
		if len(tags) > 0 && tags[0] != "" {
			header.Set("If-Match", tags[0])
		}
		r, err := c.send(ctx, http.MethodPatch, doc.path, body, header)
		if err != nil {
			return nil, err
		}
		f := parseFault(r)
		switch {
		case r.status < 300:
			return r, nil
		case (r.status == http.StatusPreconditionFailed || r.status == http.StatusPreconditionRequired || f.says("PreconditionHeaderMissing")) && len(tags) > 1:
			tags = tags[1:]
		case f.passing() && tries < busyTries:
			if err := d.pause(ctx, busyPause); err != nil {
				return nil, err
			}
		default:
			return r, nil
		}
	}
}

// tags is the ladder for a document, ending in "" (no header).
func (d *document) tags() []string {
	var out []string
	for _, t := range []string{d.etag, d.text("@odata.etag")} {
		for _, form := range []string{t, strings.TrimPrefix(t, "W/")} {
			if form != "" && !slices.Contains(out, form) {
				out = append(out, form)
			}
		}
	}
	return append(out, "")
}

// pause waits on the injected clock.
func (d *Driver) pause(ctx context.Context, t time.Duration) error {
	if err := d.wait(ctx, t); err != nil {
		return driver.AsError(err)
	}
	return nil
}
