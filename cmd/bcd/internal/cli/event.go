package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
)

// followCommand prints events as they happen.
func followCommand() *cobra.Command {
	return &cobra.Command{Use: "follow", Short: "Print events as they happen.", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		resp, err := c.Open(cmd.Context(), "GET", "/api/v1/events/stream", nil, nil, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		asJSON, _ := cmd.Flags().GetBool("json")
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, maxFile)
		for sc.Scan() {
			data, ok := strings.CutPrefix(sc.Text(), "data: ")
			if !ok {
				continue
			}
			if asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), data)
				continue
			}
			var e app.Event
			if json.Unmarshal([]byte(data), &e) == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %-5s %-18s %s  %s\n", e.Time.Local().Format("15:04:05"), e.Level, e.Kind, e.MachineID, Printable(e.Message))
			}
		}
		return sc.Err()
	}}
}
