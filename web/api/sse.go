package api

import "strings"

// dataLines writes text as data fields. CR, LF and CRLF all end a line, as readers see it.
func dataLines(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString("data: " + line + "\n")
	}
	return b.String()
}
