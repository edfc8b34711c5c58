package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// timelineCommand shows what was seen of a machine, oldest first, then how its boot stands, and goes on as things happen.
func timelineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "timeline <machine>", Short: "Show what was seen of a machine: network, BMC, agent, console, workflows; and how its boot stands.",
		Example: "  bcd machine timeline node-1 --follow\n  bcd machine timeline node-1 --kind dhcp.,tftp.,http. --limit 50"}
	follow := cmd.Flags().Bool("follow", false, "go on as things happen")
	return timelineOf(cmd, "/api/v1/machines/", follow)
}

// portTimelineCommand shows what was seen of a port that is nobody's.
func portTimelineCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "timeline <mac>", Short: "Show what was seen of a port that is nobody's yet."}
	return timelineOf(cmd, "/api/v1/discoveries/", new(bool))
}

// timelineOf completes a command that shows a timeline below an address.
func timelineOf(cmd *cobra.Command, base string, follow *bool) *cobra.Command {
	query := queryFlags(cmd, map[string]string{"kind": "kinds, separated by commas; dhcp. is the whole family", "before": "what the page before said", "limit": "how many, at most 1000"})
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		asJSON, _ := cmd.Flags().GetBool("json")
		t := &timeline{client: c, path: base + url.PathEscape(args[0]) + "/timeline", out: cmd.OutOrStdout(), json: asJSON}
		if err := t.page(cmd.Context(), query(), *follow); err != nil || !*follow {
			return err
		}
		return t.follow(cmd.Context(), query().Get("kind"))
	}
	return cmd
}

// timeline prints one machine's.
type timeline struct {
	client *client.Client
	path   string
	out    io.Writer
	json   bool
	last   int64  // id of the last record printed
	judged string // code and level of the verdict that was printed last
}

// page prints what there is. With JSON it is printed as it came, or, when it will be followed, as one record a line.
func (t *timeline) page(ctx context.Context, q url.Values, follow bool) error {
	raw, err := t.client.Do(ctx, http.MethodGet, t.path, q, nil)
	if err != nil {
		return err
	}
	var page api.Timeline
	if err := json.Unmarshal(raw, &page); err != nil {
		return fmt.Errorf("reading the timeline: %w", err)
	}
	if t.json && !follow {
		_, err := fmt.Fprintln(t.out, string(raw))
		return err
	}
	if page.Next != "" && !t.json {
		fmt.Fprintf(t.out, "earlier: --before %s\n", Printable(page.Next))
	}
	for _, x := range slices.Backward(page.Items) {
		if err := t.record(x); err != nil {
			return err
		}
	}
	if len(page.Items) == 0 && !t.json {
		fmt.Fprintln(t.out, "nothing was seen yet")
	}
	return t.verdict(page.Verdict)
}

func (t *timeline) record(x app.Record) error {
	t.last = max(t.last, x.ID)
	if t.json {
		return json.NewEncoder(t.out).Encode(x)
	}
	_, err := fmt.Fprintf(t.out, "%s  %-5s %-15s %s\n", x.Time.Local().Format("2006-01-02 15:04:05.000"), Printable(x.Level), Printable(x.Kind), Printable(x.Message))
	return err
}

// verdict prints one that says something else than the last: its seconds alone are no news.
func (t *timeline) verdict(v *recorder.Verdict) error {
	if v == nil || t.json || v.Code+v.Level == t.judged {
		return nil
	}
	t.judged = v.Code + v.Level
	_, err := fmt.Fprintf(t.out, "  => %s: %s\n", Printable(v.Level), Printable(v.Sentence))
	if err == nil && v.WayOut != "" && v.Level != recorder.LevelOK {
		_, err = fmt.Fprintf(t.out, "     what to do: %s\n", Printable(v.WayOut))
	}
	return err
}

// follow prints what comes until ctx ends, and rides out an appliance that restarts.
func (t *timeline) follow(ctx context.Context, kinds string) error {
	for {
		err := t.stream(ctx, kinds)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && app.CodeOf(err) != app.Unavailable && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (t *timeline) stream(ctx context.Context, kinds string) error {
	q, header := url.Values{}, http.Header{}
	if kinds != "" {
		q.Set("kind", kinds)
	}
	if t.last > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(t.last, 10))
	}
	resp, err := t.client.Open(ctx, http.MethodGet, t.path+"/stream", q, nil, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return frames(resp.Body, func(f frame) error {
		if f.name == "verdict" {
			var v *recorder.Verdict
			if json.Unmarshal([]byte(f.data), &v) != nil {
				return nil // of a newer appliance
			}
			return t.verdict(v)
		}
		var x app.Record
		if json.Unmarshal([]byte(f.data), &x) != nil {
			return nil
		}
		return t.record(x)
	})
}
