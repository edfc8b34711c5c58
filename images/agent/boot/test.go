package boot

import "strconv"

// test evaluates the arguments of GRUB's test command: -o binds least, then -a, then !.
func (g *grub) test(args []string) bool {
	for i, a := range args {
		if a == "-o" && i > 0 {
			return g.test(args[:i]) || g.test(args[i+1:])
		}
	}
	for i, a := range args {
		if a == "-a" && i > 0 {
			return g.test(args[:i]) && g.test(args[i+1:])
		}
	}
	if len(args) > 0 && args[0] == "!" {
		return !g.test(args[1:])
	}
	switch len(args) {
	case 1:
		return args[0] != ""
	case 2:
		return g.unary(args[0], args[1])
	case 3:
		return compare(args[0], args[1], args[2])
	}
	return false
}

func (g *grub) unary(op, arg string) bool {
	switch op {
	case "-z":
		return arg == ""
	case "-n":
		return arg != ""
	case "-e", "-f", "-s", "-d":
		p, path := g.place(arg)
		dir, size, err := p.stat(path)
		switch {
		case err != nil:
			return false
		case op == "-d":
			return dir
		case op == "-f":
			return !dir
		case op == "-s":
			return !dir && size > 0
		}
		return true
	}
	return false
}

func compare(a, op, b string) bool {
	switch op {
	case "=", "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case ">":
		return a > b
	}
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil {
		return false
	}
	switch op {
	case "-eq":
		return x == y
	case "-ne":
		return x != y
	case "-lt":
		return x < y
	case "-le":
		return x <= y
	case "-gt":
		return x > y
	case "-ge":
		return x >= y
	}
	return false
}
