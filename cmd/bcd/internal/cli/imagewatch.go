package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

func watchImageCommand() *cobra.Command {
	return &cobra.Command{Use: "watch <image>", Short: "Follow the import of an image until it is ready or failed.", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := connect()
			if err != nil {
				return err
			}
			return watchImage(cmd, c, args[0])
		}}
}

// watchImage shows on standard error how far an import is, and ends with what became of the image: an error when it failed.
// It asks once a second and rides out an appliance that restarts.
func watchImage(cmd *cobra.Command, c *client.Client, id string) error {
	for p := (imageProgress{out: cmd.ErrOrStderr()}); ; {
		raw, err := c.Do(cmd.Context(), "GET", "/api/v1/images/"+url.PathEscape(id), nil, nil)
		switch {
		case err == nil:
			var i app.Image
			if err := json.Unmarshal(raw, &i); err != nil {
				return fmt.Errorf("reading the image: %w", err)
			}
			if i.State != "importing" {
				return imported(cmd, &i, raw)
			}
			p.show(&i, time.Now())
		case app.CodeOf(err) != app.Unavailable:
			return err
		default:
			p.line(Printable(err.Error()) + "; trying again")
		}
		if err := pause(cmd.Context()); err != nil {
			return err
		}
	}
}

// imported says what became of an image.
func imported(cmd *cobra.Command, i *app.Image, raw json.RawMessage) error {
	if i.State == "ready" {
		return report(cmd, route("images.upload"), nil, raw)
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		if err := show(cmd, "image", raw); err != nil {
			return err
		}
	}
	return app.Errorf(app.Conflict, "image-"+i.State, "image %s is %s: %s", i.Name, i.State, cmp.Or(i.Reason, "no reason was given")).
		Do("once that is mended, import it again under the same name")
}

// imageProgress says how far an import is, phase by phase.
type imageProgress struct {
	out   io.Writer
	last  string
	phase app.ImagePhase
	begun time.Time // of the phase, as seen here
	from  int64     // bytes that were done then
}

func (p *imageProgress) show(i *app.Image, now time.Time) {
	phase := cmp.Or(i.Phase, app.ImageReceiving)
	if phase != p.phase || i.Done < p.from {
		p.phase, p.begun, p.from = phase, now, i.Done
	}
	rate := 0.0
	if took := now.Sub(p.begun).Seconds(); took > 0 {
		rate = float64(i.Done-p.from) / took
	}
	p.line(Printable(string(phase) + ": " + amount(i.Done, i.Total, rate)))
}

// follow shows how the appliance goes on with an image once it was sent, until the context ends.
func (p *imageProgress) follow(ctx context.Context, c *client.Client, name string, sent <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-sent:
	}
	for pause(ctx) == nil {
		var i app.Image
		raw, err := c.Do(ctx, "GET", "/api/v1/images/"+url.PathEscape(name), nil, nil)
		if err == nil && json.Unmarshal(raw, &i) == nil && i.State == "importing" && i.Phase != app.ImageReceiving {
			p.show(&i, time.Now())
		}
	}
}

// line prints what is not what was printed last.
func (p *imageProgress) line(s string) {
	if s != p.last {
		p.last = s
		fmt.Fprintln(p.out, s)
	}
}

// amount is how much of something is done, how fast, and how long the rest takes, as far as each is known. rate is in bytes a
// second.
func amount(done, total int64, rate float64) string {
	s := Bytes(done)
	if total > 0 {
		s += " of " + Bytes(total)
	}
	if rate < 1 {
		return s
	}
	s += fmt.Sprintf(", %s/s", Bytes(int64(rate)))
	if total > done {
		s += fmt.Sprintf(", %s left", time.Duration(float64(total-done)/rate*float64(time.Second)).Round(time.Second))
	}
	return s
}

// pause waits a second, or until there is nothing to wait for.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}

// route is a route by its id.
func route(id string) api.Route {
	for _, rt := range api.Routes() {
		if rt.ID == id {
			return rt
		}
	}
	panic("no route " + id)
}
