package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
)

// applyCommand enrolls the machines of a CSV or YAML file. Machines that are there already are left as they are, so the
// same file can be applied again after a mistake in it was mended.
func applyCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "apply -f <file>", Short: "Enroll the machines of a CSV or YAML file.", Args: cobra.NoArgs,
		Long: `Enroll the machines of a file.

YAML: a list of machines, each with the fields of "bcd machine enroll" (name, bmc.driver, bmc.address, bmc.credentials, macs …).
CSV: a header line with the same names, nested ones with dots:

  name,bmc.driver,bmc.address,bmc.credentials.username,bmc.credentials.password,macs
  node-1,redfish,https://192.0.2.11,admin,secret,00:00:5e:00:53:01;00:00:5e:00:53:02`}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file, - for standard input")
	_ = cmd.MarkFlagRequired("file") // the flag was just defined
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		raw, err := readAll(file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		machines, err := Machines(raw)
		if err != nil {
			return err
		}
		c, err := connect()
		if err != nil {
			return err
		}
		return apply(cmd.Context(), c, cmd.OutOrStdout(), machines)
	}
	return cmd
}

func apply(ctx context.Context, c *client.Client, out io.Writer, machines []map[string]any) error {
	failed := 0
	for _, m := range machines {
		name := fmt.Sprint(m["name"])
		if _, err := c.Do(ctx, "GET", "/api/v1/machines/"+url.PathEscape(name), nil, nil); err == nil {
			fmt.Fprintf(out, "%s: enrolled already\n", Printable(name))
			continue
		}
		if _, err := c.Do(ctx, "POST", "/api/v1/machines", nil, m); err != nil {
			failed++
			fmt.Fprintf(out, "%s: %s\n", Printable(name), Printable(err.Error()))
			continue
		}
		fmt.Fprintf(out, "%s: enrolled\n", Printable(name))
	}
	if failed > 0 {
		return app.Errorf(app.InvalidInput, "apply-failed", "%d of %d machines were not enrolled", failed, len(machines)).Do("mend the lines above and apply the file again")
	}
	return nil
}

// Machines reads the machines of a CSV or YAML file.
func Machines(raw []byte) ([]map[string]any, error) {
	var list []map[string]any
	first, _, _ := strings.Cut(strings.TrimSpace(string(raw)), "\n")
	if strings.Contains(first, ",") && !strings.ContainsAny(first, "{}[]:") {
		return machinesCSV(raw)
	}
	if err := yaml.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return nil, app.Invalid("file", "holds no list of machines").Do("see bcd machine apply --help for both forms")
	}
	return list, nil
}

func machinesCSV(raw []byte) ([]map[string]any, error) {
	rows, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil {
		return nil, app.Invalid("file", "is not CSV: %v", err)
	}
	if len(rows) < 2 {
		return nil, app.Invalid("file", "holds a header and no machine")
	}
	var list []map[string]any
	for _, row := range rows[1:] {
		m := map[string]any{}
		for i, name := range rows[0] {
			name, value := strings.TrimSpace(name), strings.TrimSpace(row[i])
			switch {
			case value == "":
			case name == "macs":
				put(m, []string{"macs"}, strings.FieldsFunc(value, func(r rune) bool { return r == ';' || r == ' ' }))
			default:
				put(m, strings.Split(name, "."), value)
			}
		}
		list = append(list, m)
	}
	return list, nil
}
