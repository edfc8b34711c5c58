package boot

import (
	"errors"
	"strings"
)

// piece is a part of a word: text, or a variable to be expanded.
type piece struct {
	text   string
	isVar  bool
	quoted bool // no splitting of what the variable holds
}

// word is one argument before expansion.
type word []piece

// bare gives the word's text when it is one unquoted literal, as keywords are.
func (w word) bare() string {
	if len(w) == 1 && !w[0].isVar && !w[0].quoted {
		return w[0].text
	}
	return ""
}

// command is a simple command: words up to a newline or semicolon.
type command []word

var errScript = errors.New("the boot configuration cannot be understood")

// lex splits a GRUB script into commands. "{" and "}" are commands of their own, so that blocks need no separators.
func lex(s string) ([]command, error) {
	var out []command
	var cmd command
	end := func() {
		if len(cmd) > 0 {
			out, cmd = append(out, cmd), nil
		}
	}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			i += 2
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '\n' || c == ';':
			end()
			i++
		case c == '#':
			for i < len(s) && s[i] != '\n' {
				i++
			}
		default:
			w, n, err := lexWord(s[i:])
			if err != nil {
				return nil, err
			}
			i += n
			if b := w.bare(); b == "{" || b == "}" {
				end()
				out = append(out, command{w})
				continue
			}
			cmd = append(cmd, w)
		}
	}
	end()
	return out, nil
}

// lexWord reads one word and tells its length.
func lexWord(s string) (word, int, error) {
	var w word
	add := func(p piece) {
		if n := len(w); n > 0 && !p.isVar && !w[n-1].isVar && w[n-1].quoted == p.quoted {
			w[n-1].text += p.text
			return
		}
		w = append(w, p)
	}
	i := 0
	for i < len(s) {
		switch c := s[i]; {
		case strings.IndexByte(" \t\r\n;", c) >= 0:
			return w, i, nil
		case (c == '{' || c == '}') && i == 0:
			return word{{text: string(c)}}, 1, nil
		case c == '\\' && i+1 < len(s):
			if s[i+1] != '\n' {
				add(piece{text: s[i+1 : i+2], quoted: true})
			}
			i += 2
		case c == '\'':
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				return nil, 0, errScript
			}
			add(piece{text: s[i+1 : i+1+n], quoted: true})
			i += n + 2
		case c == '"':
			n, err := lexDouble(s[i+1:], add)
			if err != nil {
				return nil, 0, err
			}
			i += n + 1
		case c == '$':
			p, n := lexVar(s[i:])
			add(p)
			i += n
		default:
			add(piece{text: s[i : i+1]})
			i++
		}
	}
	return w, i, nil
}

// lexDouble reads up to and including the closing quote and tells how far that is.
func lexDouble(s string, add func(piece)) (int, error) {
	add(piece{quoted: true})
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$\n", s[i+1]) >= 0:
			if s[i+1] != '\n' {
				add(piece{text: s[i+1 : i+2], quoted: true})
			}
			i += 2
		case c == '$':
			p, n := lexVar(s[i:])
			p.quoted = true
			add(p)
			i += n
		default:
			add(piece{text: s[i : i+1], quoted: true})
			i++
		}
	}
	return 0, errScript
}

// lexVar reads $name, ${name}, $1, $? and the like; a lone dollar is text.
func lexVar(s string) (piece, int) {
	if strings.HasPrefix(s, "${") {
		if n := strings.IndexByte(s, '}'); n > 0 {
			return piece{text: s[2:n], isVar: true}, n + 1
		}
	}
	n := 1
	for n < len(s) && (s[n] == '_' || s[n] >= '0' && s[n] <= '9' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z') {
		n++
	}
	if n == 1 && len(s) > 1 && strings.IndexByte("?#*@", s[1]) >= 0 {
		n = 2
	}
	if n == 1 {
		return piece{text: "$"}, 1
	}
	return piece{text: s[1:n], isVar: true}, n
}
