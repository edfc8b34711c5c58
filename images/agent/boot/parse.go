package boot

import "fmt"

// Limits of a script.
const (
	maxScript = 1 << 20  // bytes
	maxDepth  = 32       // of blocks in blocks and calls in calls
	maxSteps  = 20000    // commands run
	maxSpent  = 16 << 20 // bytes of files read and words made, over the whole run
	maxValue  = 8 << 10  // bytes of one word or variable
)

// node is a statement: a plain command, or one with blocks.
type node struct {
	words  command
	branch []branch // of an if; the words are empty
	body   []node   // of a function, menuentry, submenu or loop
	loop   bool     // of a loop, which is left out
}

// branch is one arm of an if. An empty cond is "else".
type branch struct{ cond, body []node }

// parser turns commands into nodes.
type parser struct {
	in    []command
	depth int
}

// parse reads a whole script.
func parse(s string) ([]node, error) {
	if len(s) > maxScript {
		return nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", errScript, len(s), maxScript)
	}
	in, err := lex(s)
	if err != nil {
		return nil, err
	}
	p := &parser{in: in}
	out, stop, err := p.block()
	if err == nil && stop != "" {
		err = fmt.Errorf("%w: %q is out of place", errScript, stop)
	}
	return out, err
}

// head is the keyword of the next command, "" at the end.
func (p *parser) head() string {
	if len(p.in) == 0 {
		return ""
	}
	return p.in[0][0].bare()
}

// shift takes the keyword off the next command, which vanishes when nothing is left of it.
func (p *parser) shift() {
	if p.in[0] = p.in[0][1:]; len(p.in[0]) == 0 {
		p.in = p.in[1:]
	}
}

// block reads statements up to a keyword that ends a block, which it takes and returns.
func (p *parser) block() (out []node, stop string, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, "", fmt.Errorf("%w: it is nested more than %d deep", errScript, maxDepth)
	}
	defer func() { p.depth-- }()
	for len(p.in) > 0 {
		switch h := p.head(); h {
		case "then", "elif", "else", "fi", "do", "done", "}":
			p.shift()
			return out, h, nil
		default:
			n, err := p.statement(h)
			if err != nil {
				return nil, "", err
			}
			out = append(out, n)
		}
	}
	return out, "", nil
}

// expect reads a block that has to end with one of the stops.
func (p *parser) expect(stops ...string) ([]node, string, error) {
	body, got, err := p.block()
	if err != nil {
		return nil, "", err
	}
	for _, s := range stops {
		if got == s {
			return body, got, nil
		}
	}
	return nil, "", fmt.Errorf("%w: %q is missing", errScript, stops[0])
}

func (p *parser) statement(head string) (node, error) {
	switch head {
	case "if":
		p.shift()
		return p.conditional()
	case "{":
		p.shift()
		body, _, err := p.expect("}")
		return node{branch: []branch{{body: body}}}, err
	case "while", "until", "for": // not evaluated: no generated configuration chooses an entry by a loop
		p.in = p.in[1:]
		if _, _, err := p.expect("do"); err != nil {
			return node{}, err
		}
		_, _, err := p.expect("done")
		return node{loop: true}, err
	}
	n := node{words: p.in[0]}
	p.in = p.in[1:]
	if head == "function" || head == "menuentry" || head == "submenu" {
		if p.head() != "{" {
			return n, nil // a menuentry without a block boots nothing
		}
		p.shift()
		body, _, err := p.expect("}")
		n.body = body
		return n, err
	}
	return n, nil
}

func (p *parser) conditional() (node, error) {
	var n node
	for {
		cond, _, err := p.expect("then")
		if err != nil {
			return n, err
		}
		body, stop, err := p.expect("fi", "elif", "else")
		if err != nil {
			return n, err
		}
		n.branch = append(n.branch, branch{cond, body})
		switch stop {
		case "fi":
			return n, nil
		case "else":
			body, _, err := p.expect("fi")
			n.branch = append(n.branch, branch{body: body})
			return n, err
		}
	}
}
