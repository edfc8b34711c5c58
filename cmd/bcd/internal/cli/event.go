package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
)

// frame is one server-sent event.
type frame struct{ name, id, data string }

// frames reads a stream of events until it ends or take fails.
func frames(r io.Reader, take func(frame) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxFile)
	var f frame
	for sc.Scan() {
		field, value, _ := strings.Cut(sc.Text(), ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "event":
			f.name = value
		case "id":
			f.id = value
		case "data":
			if f.data != "" {
				f.data += "\n"
			}
			f.data += value
		}
		if sc.Text() != "" {
			continue
		}
		if f.data != "" {
			if err := take(f); err != nil {
				return err
			}
		}
		f = frame{}
	}
	return sc.Err()
}

// queryFlags adds the flags that become a request's query.
func queryFlags(cmd *cobra.Command, help map[string]string) func() url.Values {
	values := map[string]*string{}
	for name, text := range help {
		values[name] = cmd.Flags().String(name, "", text)
	}
	return func() url.Values {
		q := url.Values{}
		for name, v := range values {
			if *v != "" {
				q.Set(name, *v)
			}
		}
		return q
	}
}

// followCommand prints events as they happen.
func followCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "follow", Short: "Print events as they happen.", Args: cobra.NoArgs,
		Example: "  bcd event follow --kind bmc. --machine node-1"}
	query := queryFlags(cmd, map[string]string{"machine": "id or name of a machine", "workflow": "id of a workflow", "kind": "such as bmc.power; bmc. is the whole family"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		resp, err := c.Open(cmd.Context(), "GET", "/api/v1/events/stream", query(), nil, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		asJSON, _ := cmd.Flags().GetBool("json")
		return frames(resp.Body, func(f frame) error {
			if asJSON {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), f.data)
				return err
			}
			var e app.Event
			if json.Unmarshal([]byte(f.data), &e) != nil {
				return nil // of a newer appliance
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %-5s %-18s %s  %s\n", e.Time.Local().Format("15:04:05"), Printable(e.Level), Printable(e.Kind), Printable(e.MachineID), Printable(e.Message))
			return err
		})
	}
	return cmd
}
