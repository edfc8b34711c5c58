package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
)

// What the help shows as an example is a command that there is, with flags and arguments that it takes.
func TestExamplesAreCommands(t *testing.T) {
	newRoot := func() *cobra.Command {
		root := &cobra.Command{Use: "bcd"}
		root.PersistentFlags().Bool("json", false, "")
		root.AddGroup(&cobra.Group{ID: "client"})
		root.AddCommand(Commands()...)
		return root
	}
	checked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		for line := range strings.Lines(c.Example) {
			line = strings.TrimSpace(line)
			args, ours := strings.CutPrefix(line, "bcd ")
			if !ours || strings.ContainsAny(line, "'|<>") { // quoted or piped: a shell's to read
				continue
			}
			cmd, rest, err := newRoot().Find(strings.Fields(args))
			if err == nil && cmd.RunE == nil {
				t.Errorf("%s: %q names no command", c.CommandPath(), line)
				continue
			}
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.Args != nil {
				err = cmd.Args(cmd, cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
			}
			checked++
		}
	}
	walk(newRoot())
	if checked < 20 {
		t.Errorf("only %d examples were checked", checked)
	}
}

// The verbs that have several ways to be called show them.
func TestVerbsShowExamples(t *testing.T) {
	root := &cobra.Command{Use: "bcd"}
	root.AddCommand(Commands()...)
	for _, verb := range []string{"machine boot-iso", "machine exit-iso", "machine boot-order", "machine kexec", "machine forget-kexec", "machine set-bmc", "port list", "port answer", "port forget"} {
		cmd, _, err := root.Find(strings.Fields(verb))
		if err != nil || cmd.CommandPath() != "bcd "+verb || cmd.Short == "" || !strings.Contains(cmd.Example, "bcd "+verb) {
			t.Errorf("%s: %v, example %q", verb, err, cmd.Example)
		}
	}
}

// The way out of an error that something is not there is a command that there is.
func TestWhatIsMissingIsListed(t *testing.T) {
	root := &cobra.Command{Use: "bcd"}
	root.AddCommand(Commands()...)
	for _, noun := range []string{"approval", "discovery", "driver", "image", "lease", "machine", "plugin", "pool", "profile", "question", "secret", "subnet", "token", "user", "workflow"} {
		list, ok := strings.CutSuffix(app.Missing(noun, "x").WayOut, " shows those there are")
		cmd, _, err := root.Find(strings.Fields(strings.TrimPrefix(list, "bcd ")))
		if !ok || err != nil || cmd.CommandPath() != list {
			t.Errorf("%s: %q, %v", noun, app.Missing(noun, "x").WayOut, err)
		}
	}
	if e := app.Missing("boot", "x"); e.WayOut != "" {
		t.Errorf("a boot: %q", e.WayOut)
	}
}

func TestABMCIsSetFromTheCommandLine(t *testing.T) {
	asked, out, err := run(t, `{"card":{"ok":true},"machine":{"id":"m-1"}}`, 200, "machine", "set-bmc", "node-1", "--driver", "ipmi", "--address", "192.0.2.12", "--credentialsRef", "secret://root/rack1-bmc", "--json")
	want := `PUT /api/v1/machines/node-1/bmc {"address":"192.0.2.12","credentialsRef":"secret://root/rack1-bmc","driver":"ipmi"}`
	if err != nil || strings.TrimSpace(asked) != want || out != `{"card":{"ok":true},"machine":{"id":"m-1"}}`+"\n" {
		t.Errorf("asked %s, shown %q, %v", asked, out, err)
	}
}
