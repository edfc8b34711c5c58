package boot

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
)

// entry is what a boot loader would start.
type entry struct {
	title   string
	part    *partition // where the paths below are
	kernel  string
	args    string
	initrds []string
	chain   string // another loader, which is started instead of a kernel
	blind   bool   // its configuration was not understood in full
}

// item is a line of a GRUB menu.
type item struct {
	title, id string
	body      []node     // run when it is chosen
	sub       bool       // opens a menu
	bls       *entry     // of a Boot Loader Specification file
	at        *partition // root when the menu was built
}

// grub runs a configuration on the partitions of a disk.
type grub struct {
	parts []*partition
	vars  map[string]string
	funcs map[string][]node
	menu  []item
	log   *slog.Logger

	found entry // by linux and initrd, or chainloader
	blind bool  // a part that this interpreter leaves out was come by
	steps int
	spent int
	depth int
	args  []string // of the function that runs
}

// errReturn ends a function or a sourced file early.
var errReturn = errors.New("return")

// newGRUB starts where GRUB stands when it reads the configuration file of a partition.
func newGRUB(parts []*partition, at *partition, file, firmware string, log *slog.Logger) *grub {
	root := device(at)
	platform := "pc"
	if firmware == "uefi" {
		platform = "efi"
	}
	return &grub{
		parts: parts, funcs: map[string][]node{}, log: log,
		vars: map[string]string{
			"root": root, "prefix": "(" + root + ")" + path.Dir(file), "config_directory": "(" + root + ")" + path.Dir(file),
			"config_file": "(" + root + ")" + file, "grub_platform": platform, "grub_cpu": "x86_64", "feature_menuentry_id": "y",
			"feature_platform_search_hint": "y", "feature_timeout_style": "y", "feature_default_font_path": "y",
			"feature_all_video_module": "y", "feature_ntldr": "y", "feature_nativedisk_cmd": "y", "feature_200_final": "y",
			// Ubuntu's cloud images try their kernel without an initrd first, with panic=-1, and by this with one.
			"initrdfail": "1",
		},
	}
}

// device is our name of a partition inside the interpreter.
func device(p *partition) string { return "part:" + strconv.Itoa(p.number) }

// place splits "(device)/path" or a path below root. The partition is nil when the device is not on this disk.
func (g *grub) place(s string) (*partition, string) {
	dev := g.vars["root"]
	if rest, ok := strings.CutPrefix(s, "("); ok {
		if d, p, ok := strings.Cut(rest, ")"); ok {
			dev, s = d, p
		}
	}
	return g.partition(dev), s
}

// partition finds "part:2", "hd0,gpt2", "hd0,msdos2" and "hd0,2": GRUB counts disks from the one it was started from.
func (g *grub) partition(dev string) *partition {
	digits := strings.TrimPrefix(dev, "part:")
	if disk, part, ok := strings.Cut(dev, ","); ok {
		if disk != "hd0" {
			return nil
		}
		digits = strings.TrimLeft(part, "dgmopst")
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return nil
	}
	for _, p := range g.parts {
		if p.number == n {
			return p
		}
	}
	return nil
}

// source runs a file.
func (g *grub) source(name string) error {
	p, file := g.place(name)
	b, err := p.read(file, maxScript)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	g.spent += len(b)
	nodes, err := parse(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := g.run(nodes); err != nil && !errors.Is(err, errReturn) {
		return err
	}
	return nil
}

// run runs statements; ok is the status of the last.
func (g *grub) run(nodes []node) (ok bool, err error) {
	if g.depth++; g.depth > maxDepth {
		return false, fmt.Errorf("%w: it calls itself too deeply", errScript)
	}
	defer func() { g.depth-- }()
	ok = true
	for i := range nodes {
		if g.steps++; g.steps > maxSteps || g.spent > maxSpent {
			return false, fmt.Errorf("%w: it does not come to an end", errScript)
		}
		if ok, err = g.statement(&nodes[i]); err != nil {
			return ok, err
		}
	}
	return ok, nil
}

func (g *grub) statement(n *node) (bool, error) {
	if n.branch != nil {
		for _, b := range n.branch {
			ok, err := g.run(b.cond) // an "else" has no condition, which holds
			if err != nil {
				return false, err
			}
			if ok {
				return g.run(b.body)
			}
		}
		return true, nil
	}
	g.blind = g.blind || n.loop
	args := g.expand(n.words)
	if len(args) == 0 {
		return true, nil
	}
	switch args[0] {
	case "function":
		if len(args) > 1 {
			g.funcs[args[1]] = n.body
		}
		return true, nil
	case "menuentry", "submenu":
		g.addItem(args, n.body)
		return true, nil
	}
	if body, known := g.funcs[args[0]]; known {
		return g.call(body, args)
	}
	return g.command(args)
}

func (g *grub) call(body []node, args []string) (bool, error) {
	before := g.args
	g.args = args
	ok, err := g.run(body)
	g.args = before
	if errors.Is(err, errReturn) {
		return true, nil
	}
	return ok, err
}

// addItem reads the title and id of a menuentry or submenu.
func (g *grub) addItem(args []string, body []node) {
	it := item{body: body, sub: args[0] == "submenu", at: g.partition(g.vars["root"])}
	titled := false
	for i := 1; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--id" && i+1 < len(args):
			i++
			it.id = args[i]
		case (a == "--class" || a == "--users" || a == "--hotkey" || a == "--source") && i+1 < len(args):
			i++
		case strings.HasPrefix(a, "--id="):
			it.id = strings.TrimPrefix(a, "--id=")
		case strings.HasPrefix(a, "--"):
		case !titled:
			it.title, titled = a, true
		}
	}
	if len(g.menu) < 1024 {
		g.menu = append(g.menu, it)
	}
}

// expand gives the words after variables were put in. Unquoted variables are split at white space, and vanish when empty.
// What a variable can grow to by being put into itself is bounded.
func (g *grub) expand(words command) []string {
	var out []string
	for _, w := range words {
		cur, have := "", false
		for _, p := range w {
			v := p.text
			if p.isVar {
				v = g.value(p.text)
			}
			if g.spent += len(v); g.spent > maxSpent {
				return nil
			}
			if !p.isVar || p.quoted {
				cur, have = clip(cur+v, maxValue), true
				continue
			}
			for i, f := range strings.Fields(v) {
				if i > 0 {
					out, cur = append(out, cur), ""
				}
				cur, have = clip(cur+f, maxValue), true
			}
		}
		if have {
			out = append(out, cur)
		}
	}
	return out
}

func (g *grub) value(name string) string {
	if n, err := strconv.Atoi(name); err == nil {
		if n < len(g.args) && n >= 0 {
			return g.args[n]
		}
		return ""
	}
	if name == "#" {
		return strconv.Itoa(max(len(g.args)-1, 0))
	}
	return g.vars[name]
}

// command runs what is not a function. A command that only draws, loads modules or waits succeeds and does nothing.
func (g *grub) command(args []string) (bool, error) {
	name, rest := args[0], args[1:]
	switch name {
	case "[":
		if len(rest) > 0 && rest[len(rest)-1] == "]" {
			rest = rest[:len(rest)-1]
		}
		return g.test(rest), nil
	case "test":
		return g.test(rest), nil
	case "false", "keystatus", "cmostest", "cpuid", "regexp", "sleep":
		g.blind = g.blind || name == "regexp"
		return false, nil
	case "set", "export":
		for _, a := range rest {
			g.assign(a)
		}
	case "unset":
		for _, a := range rest {
			delete(g.vars, a)
		}
	case "search", "search.fs_uuid", "search.fs_label", "search.file":
		return g.search(name, rest), nil
	case "load_env":
		return g.loadEnv(rest), nil
	case "source", ".", "configfile", "normal":
		if len(rest) == 0 {
			return false, nil
		}
		if err := g.source(rest[0]); errors.Is(err, errScript) {
			return false, err
		} else if err != nil {
			g.log.Info("a part of the boot configuration is missing", "error", err)
			p, _ := g.place(rest[0])
			g.blind = g.blind || p == nil
			return false, nil
		}
	case "return", "exit":
		return true, errReturn
	case "blscfg":
		g.blscfg(rest)
	case "linux", "linux16", "linuxefi":
		g.setKernel(rest)
	case "chainloader":
		g.setChain(rest)
	case "legacy_configfile", "syslinux_configfile", "eval", "probe", "cat", "read", "smbios", "getenv", "loopback", "cryptomount":
		g.blind = true
	case "initrd", "initrd16", "initrdefi":
		g.setInitrds(rest)
	default:
		g.assign(name)
	}
	return true, nil
}

// assign does name=value; anything else is left alone.
func (g *grub) assign(s string) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" || len(g.vars) > 4096 {
		return
	}
	if name == "root" {
		value = strings.Trim(value, "()")
		if g.partition(value) == nil { // names by a firmware's or another disk's count: search usually follows
			return
		}
	}
	g.vars[name] = value
}

// setKernel notes the kernel; an initrd named before belongs to another.
func (g *grub) setKernel(args []string) {
	if len(args) == 0 {
		return
	}
	p, file := g.place(args[0])
	g.found = entry{part: p, kernel: file, args: quoteArgs(args[1:])}
}

// setInitrds notes what goes with the kernel that was named before. What is not a file beside that kernel is left as GRUB would
// look for it, which no file is called.
func (g *grub) setInitrds(args []string) {
	g.found.initrds = nil
	for _, a := range args {
		p, file := g.place(a)
		if p != g.found.part || strings.HasPrefix(a, "newc:") {
			g.blind = true
			if file = a; !strings.HasPrefix(a, "(") {
				file = "(" + g.vars["root"] + ")" + a
			}
		}
		g.found.initrds = append(g.found.initrds, file)
	}
}

// setChain notes another loader.
func (g *grub) setChain(args []string) {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			p, file := g.place(a)
			g.found = entry{part: p, chain: file}
			return
		}
	}
}

// quoteArgs joins arguments as GRUB hands them to the kernel: one with a space is put in quotes.
func quoteArgs(args []string) string {
	var out []string
	for _, a := range args {
		if strings.ContainsAny(a, " \t") {
			a = `"` + a + `"`
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}
