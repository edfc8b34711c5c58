// Package busybox builds the one executable of the ramdisk: the agent and u-root's core commands in a single static
// binary that acts by the name it is called with.
//
// u-root's gobusybox rewrites every command into a package of one program. It needs the Go toolchain and this module's
// source, so it runs when bcd is built, never on a jump host; there, ramdisk.Build takes the binary from the built-in
// initramfs.
package busybox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/u-root/gobusybox/src/pkg/bb"
	"github.com/u-root/gobusybox/src/pkg/golang"
)

//go:embed commands.go
var commandsSource string

// AgentCommand is the package of the ramdisk's own command; its base name is the name it is called by.
const AgentCommand = "github.com/better-compute/bcd/cmd/bcd-ramdisk"

// buildTags choose gosh's line editor: the default one asks the terminal for its colours and waits for an answer, which a
// serial console never gives.
const buildTags = "goshliner"

// Config of one build.
type Config struct {
	ModuleDir string    // root of this module's source; "" is the working directory
	WorkDir   string    // for the generated source, emptied first; kept, so that the next build compiles only changes
	Out       string    // the binary; its description goes to Out + ".json"
	Version   string    // of bcd, told to the appliance; "" is "dev"
	Commands  []string  // import paths; nil is AgentCommand and the embedded list
	Output    io.Writer // compiler messages; nil drops them
}

// Description is what Out + ".json" holds.
type Description struct {
	Commands []string `json:"commands"` // names, sorted
	Go       string   `json:"go"`       // toolchain, as "go1.26.8"
	Modules  []Module `json:"modules"`  // third-party Go modules linked in, sorted by path
}

// Module is a Go module linked into the busybox.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Build compiles the busybox for linux/amd64 without cgo. The same source and toolchain give the same bytes.
func Build(ctx context.Context, cfg Config) (*Description, error) {
	cmds := cfg.Commands
	if cmds == nil {
		var err error
		if cmds, err = List(); err != nil {
			return nil, err
		}
		cmds = append([]string{AgentCommand}, cmds...)
	}
	out, err := filepath.Abs(cfg.Out)
	if err != nil {
		return nil, fmt.Errorf("finding the output %q: %w", cfg.Out, err)
	}
	if err := generate(cfg, cmds); err != nil {
		return nil, err
	}
	if err := compile(ctx, cfg, out); err != nil {
		return nil, err
	}
	d, err := describe(ctx, cfg.ModuleDir, cmds)
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the description: %w", err)
	}
	if err := os.WriteFile(out+".json", append(b, '\n'), 0o644); err != nil {
		return nil, fmt.Errorf("writing the description: %w", err)
	}
	return d, nil
}

// List gives the import paths of the u-root commands of the busybox, sorted.
func List() ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "commands.go", commandsSource, parser.ImportsOnly)
	if err != nil {
		return nil, fmt.Errorf("parsing the command list: %w", err)
	}
	var cmds []string
	for _, s := range f.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("parsing import %s: %w", s.Path.Value, err)
		}
		cmds = append(cmds, p)
	}
	sort.Strings(cmds)
	return cmds, nil
}

// generate writes the rewritten sources below WorkDir as a GOPATH.
func generate(cfg Config, cmds []string) error {
	if cfg.WorkDir == "" {
		return errors.New("generating the busybox: no work directory")
	}
	if err := os.RemoveAll(cfg.WorkDir); err != nil {
		return fmt.Errorf("emptying %q: %w", cfg.WorkDir, err)
	}
	env := golang.Default(golang.DisableCGO(), golang.WithGOOS("linux"), golang.WithGOARCH("amd64"), golang.WithMod(golang.ModReadonly), golang.WithBuildTag(buildTags))
	if cfg.ModuleDir != "" {
		env.Apply(golang.WithWorkingDir(cfg.ModuleDir))
	}
	err := bb.BuildBusybox(logger{cfg.Output}, &bb.Opts{
		Env: env, GenSrcDir: cfg.WorkDir, CommandPaths: cmds, GenerateOnly: true, BinaryPath: cfg.Out,
	})
	if err != nil {
		return fmt.Errorf("generating the busybox: %w", err)
	}
	return nil
}

// compile runs the compiler itself rather than through gobusybox, which rebuilds the standard library each time and
// turns inlining off: that saves 1 MB and costs the image writer its speed.
func compile(ctx context.Context, cfg Config, out string) error {
	gopath, err := filepath.Abs(cfg.WorkDir)
	if err != nil {
		return fmt.Errorf("finding %q: %w", cfg.WorkDir, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", buildTags, "-ldflags", "-s -w -buildid= -X "+AgentCommand+".version="+version(cfg), "-o", out, ".")
	cmd.Dir = filepath.Join(gopath, "src", "bb.u-root.com", "bb")
	cmd.Env = append(os.Environ(), "GO111MODULE=off", "GOPATH="+gopath, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the busybox: %w\n%s", err, b)
	}
	return nil
}

func version(cfg Config) string {
	if cfg.Version == "" {
		return "dev"
	}
	return cfg.Version
}

// describe lists the names and the modules of the commands' dependencies.
func describe(ctx context.Context, dir string, cmds []string) (*Description, error) {
	args := append([]string{"list", "-tags", buildTags, "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}"}, cmds...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	b, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the busybox's modules: %w", err)
	}
	v, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("asking the toolchain's version: %w", err)
	}
	d := &Description{Go: strings.TrimSpace(string(v))}
	seen := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		p, ver, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && !seen[p] {
			seen[p] = true
			d.Modules = append(d.Modules, Module{Path: p, Version: ver})
		}
	}
	sort.Slice(d.Modules, func(i, j int) bool { return d.Modules[i].Path < d.Modules[j].Path })
	for _, c := range cmds {
		d.Commands = append(d.Commands, path.Base(c))
	}
	sort.Strings(d.Commands)
	return d, nil
}

// logger hands gobusybox's messages to a writer.
type logger struct{ w io.Writer }

func (l logger) Printf(format string, v ...any) {
	if l.w != nil {
		fmt.Fprintf(l.w, strings.TrimSuffix(format, "\n")+"\n", v...)
	}
}

func (l logger) Print(v ...any) { l.Printf("%s", fmt.Sprint(v...)) }
