package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// maxDocuments bounds the documents of one file.
const maxDocuments = 1000

// profileExample is a hardware profile with something of everything.
const profileExample = `  name: gpu
  drivers:                         # by kind: a driver's id, or a driver with its configuration
    power: redfish
    acme-cooling: {driver: acme-bmc, config: {address: 192.0.2.9}}
  biosSettings: {BootMode: Uefi}   # commissioning sets them before its boot, and reads them back after it
  raidLayout: {volumes: [{level: "1", drives: ["0", "1"]}]}   # every volume there shall be; others are removed
  firmwareBaseline: [{component: BIOS, version: "2.1", url: "https://fw.example/bios.bin"}]
  steps:                           # operations of drivers, KIND.OPERATION, with their arguments
    commission:                    # after the inventory, while the ramdisk runs
      - {step: acme-cooling.setFanCurve, with: [30, 60, 100], timeout: 1m}
      - {step: inspect.inspect, on: ramdisk}
    beforeWrite: []                # of a deploy: in the ramdisk, before the disk is touched
    afterWrite: []                 # of a deploy: once the system is written and configured, before its first boot
  kernelArgs: iommu=pt`

// fileCommands are apply and export of a noun that is kept as data: hardware profiles and pools.
func fileCommands(noun string, portable func(json.RawMessage) (map[string]any, error)) []*cobra.Command {
	var file string
	applyCmd := &cobra.Command{Use: "apply -f <file>", Short: fmt.Sprintf("Create or replace the %ss of a YAML or JSON file.", noun), Args: cobra.NoArgs,
		Long: fmt.Sprintf("Create or replace the %ss of a file. It may hold several, separated by lines of three hyphens, each with its name\nand what \"bcd %s export\" writes.", noun, noun)}
	if noun == "profile" {
		applyCmd.Long += "\n\n" + profileExample
	}
	applyCmd.Flags().StringVarP(&file, "file", "f", "", "the file, - for standard input")
	_ = applyCmd.MarkFlagRequired("file") // the flag was just defined
	applyCmd.RunE = func(cmd *cobra.Command, _ []string) error {
		raw, err := readAll(file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		docs, err := Documents(raw)
		if err != nil {
			return err
		}
		return applyAll(cmd, noun, docs)
	}
	exportCmd := &cobra.Command{Use: fmt.Sprintf("export [<%s>...]", noun), Short: fmt.Sprintf("Write %ss as a file that can be applied: those that are named, or all.", noun), Args: cobra.ArbitraryArgs}
	exportCmd.RunE = func(cmd *cobra.Command, names []string) error { return exportAll(cmd, noun, names, portable) }
	return []*cobra.Command{applyCmd, exportCmd}
}

// Documents reads the documents of a YAML or JSON file.
func Documents(raw []byte) ([]map[string]any, error) {
	var out []map[string]any
	for d := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var v map[string]any
		err := d.Decode(&v)
		switch {
		case errors.Is(err, io.EOF) && len(out) > 0:
			return out, nil
		case err != nil || len(out) == maxDocuments:
			return nil, app.Invalid("file", "holds no documents of YAML or JSON that can be read").Do("see what export writes")
		}
		if v == nil {
			continue
		}
		if name, _ := v["name"].(string); name == "" {
			return nil, app.Invalid("name", "is missing in document %d", len(out)+1).Do("give each its name")
		}
		out = append(out, v)
	}
}

func applyAll(cmd *cobra.Command, noun string, docs []map[string]any) error {
	c, err := connect()
	if err != nil {
		return err
	}
	failed := 0
	for _, doc := range docs {
		name := doc["name"].(string) // Documents has looked
		delete(doc, "name")
		if _, err := c.Do(cmd.Context(), "PUT", "/api/v1/"+noun+"s/"+url.PathEscape(name), nil, doc); err != nil {
			failed++
			Fail(cmd.OutOrStdout(), Printable(name)+": ", err)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: saved\n", Printable(name))
	}
	if failed > 0 {
		return app.Errorf(app.InvalidInput, "apply-failed", "%d of %d were not saved", failed, len(docs)).Do("mend what is said above and apply the file again")
	}
	return nil
}

func exportAll(cmd *cobra.Command, noun string, names []string, portable func(json.RawMessage) (map[string]any, error)) error {
	c, err := connect()
	if err != nil {
		return err
	}
	var found []json.RawMessage
	for _, n := range names {
		raw, err := c.Do(cmd.Context(), "GET", "/api/v1/"+noun+"s/"+url.PathEscape(n), nil, nil)
		if err != nil {
			return err
		}
		found = append(found, raw)
	}
	if len(names) == 0 {
		raw, err := c.Do(cmd.Context(), "GET", "/api/v1/"+noun+"s", nil, nil)
		if err != nil {
			return err
		}
		var l api.List[json.RawMessage]
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		found = l.Items
	}
	e := yaml.NewEncoder(cmd.OutOrStdout())
	e.SetIndent(2)
	for _, raw := range found {
		doc, err := portable(raw)
		if err == nil {
			err = e.Encode(doc)
		}
		if err != nil {
			return fmt.Errorf("writing a %s: %w", noun, err)
		}
	}
	return e.Close()
}

func portableProfile(raw json.RawMessage) (map[string]any, error) {
	var p app.Profile
	err := json.Unmarshal(raw, &p)
	return api.Portable(&p), err
}

func portablePool(raw json.RawMessage) (map[string]any, error) {
	var p app.Pool
	err := json.Unmarshal(raw, &p)
	return api.PortablePool(&p), err
}
