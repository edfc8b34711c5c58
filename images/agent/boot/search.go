package boot

import "strings"

// search sets a variable, root unless named, to the partition with a file system's UUID, label, or a file.
func (g *grub) search(name string, args []string) bool {
	by := map[string]string{"search.fs_uuid": "uuid", "search.fs_label": "label", "search.file": "file"}[name]
	into, what := "root", ""
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--fs-uuid" || a == "-u":
			by = "uuid"
		case a == "--label" || a == "--fs-label" || a == "-l":
			by = "label"
		case a == "--file" || a == "-f":
			by = "file"
		case a == "--set" && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && i+2 < len(args): // "--set root UUID"
			i++
			into = args[i]
		case a == "--set":
		case strings.HasPrefix(a, "--set="):
			into = strings.TrimPrefix(a, "--set=")
		case a == "--hint" && i+1 < len(args):
			i++
		case strings.HasPrefix(a, "-"):
		case what == "":
			what = a
		case name != "search": // search.fs_uuid UUID root hints…
			into, args = a, nil
		}
	}
	for _, p := range g.parts {
		hit := by == "uuid" && strings.EqualFold(p.uuid, what) || by == "label" && p.label == what
		if by == "file" {
			_, _, err := p.stat(what)
			hit = err == nil
		}
		if hit && what != "" {
			g.vars[into] = device(p)
			return true
		}
	}
	g.log.Info("the boot configuration looks for a file system that is not on this disk", "by", by, "name", what)
	return false
}

// loadEnv reads an environment block: lines of name=value after a header, filled up with "#".
func (g *grub) loadEnv(args []string) bool {
	file := g.vars["prefix"] + "/grubenv"
	for i := 0; i < len(args); i++ {
		if (args[i] == "-f" || args[i] == "--file") && i+1 < len(args) {
			i++
			file = args[i]
		}
	}
	p, name := g.place(file)
	b, err := p.read(name, 64<<10)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "root=") {
			g.assign(strings.TrimRight(line, "\n"))
		}
	}
	return true
}
