package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/web/api"
)

// columns are what a list shows of each noun, as paths into the JSON.
var columns = map[string][]string{
	"machine":   {"name", "state", "power", "vendor", "model", "serial", "bmc.address", "deployment.imageName", "stateReason"},
	"discovery": {"mac", "arch", "address", "vendor", "count", "last"},
	"image":     {"name", "state", "format", "rawBytes", "usedBytes", "storedBytes", "layout.table", "reason"},
	"workflow":  {"id", "verb", "machineId", "state", "actor", "created", "error.message"},
	"event":     {"time", "level", "kind", "machineId", "message"},
	"subnet":    {"id", "cidr", "interface", "mode", "poolStart", "poolEnd", "gateway"},
	"lease":     {"address", "mac", "state", "expires", "hostname"},
	"driver":    {"id", "version", "runsOn", "kinds", "active", "source", "down"},
	"plugin":    {"time", "level", "name", "state", "version", "pid", "uid", "memoryBytes", "restarts", "reason", "message"},
	"profile":   {"name", "description"}, "pool": {"name", "policy.hardwareProfile", "description"},
	"port":     {"id", "state", "text", "last", "answeredBy"},
	"approval": {"id", "operation", "state", "actor", "created", "expires", "decidedBy"},
	"secret":   {"name", "updated"}, "user": {"name", "role", "disabled", "lastSeen"}, "token": {"id", "name", "expires", "lastUsed"},
	"health":      {"level", "code", "message", "wayOut"},
	"certificate": {"issued", "workflowId", "machine", "serial", "operator", "erased"},
	// What two verbs list of a machine:
	"BMC operation": {"started", "operation", "driver", "command", "ended", "error"}, "driver problem": {"kind", "driver", "error.message", "error.wayOut"},
}

// listed is what a command's list is of, where that is not its noun.
var listed = map[api.CLI]string{
	{Noun: "machine", Verb: "bmc-log"}:         "BMC operation",
	{Noun: "machine", Verb: "driver-problems"}: "driver problem",
	{Noun: "workflow", Verb: "certificates"}:   "certificate",
}

// Print shows an answer to a person: a list as a table, anything else as YAML. What comes from the wire is made printable.
func Print(out io.Writer, noun string, answer json.RawMessage) error {
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	m, _ := v.(map[string]any)
	items, isList := m["items"].([]any)
	if !isList {
		b, err := yaml.Marshal(v)
		if err == nil {
			_, err = io.WriteString(out, Printable(string(b)))
		}
		return err
	}
	if len(items) == 0 {
		_, err := fmt.Fprintf(out, "no %s\n", plural(noun))
		return err
	}
	table(out, noun, items)
	if next, ok := m["next"].(string); ok && next != "" {
		flag := "after"
		if noun == "workflow" || noun == "event" || noun == "BMC operation" || noun == "certificate" { // newest first
			flag = "before"
		}
		fmt.Fprintf(out, "more: --%s %s\n", flag, next)
	}
	return nil
}

func plural(noun string) string {
	switch {
	case noun == "health":
		return "warnings"
	case noun == "port":
		return "questions about ports"
	case strings.HasSuffix(noun, "y"):
		return strings.TrimSuffix(noun, "y") + "ies"
	}
	return noun + "s"
}

func table(out io.Writer, noun string, items []any) {
	cols := columns[noun]
	if cols == nil {
		cols = []string{"id", "name", "state"}
	}
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	used := map[string]bool{}
	for _, it := range items {
		for _, c := range cols {
			used[c] = used[c] || cell(it, c) != ""
		}
	}
	var head []string
	for _, c := range cols {
		if used[c] {
			head = append(head, heading(c))
		}
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, it := range items {
		var row []string
		for _, c := range cols {
			if used[c] {
				row = append(row, Printable(strings.ReplaceAll(cell(it, c), "\n", " ")))
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a terminal that went away has nobody to tell
}

// headings are the columns whose last member does not say it.
var headings = map[string]string{
	"deployment.imageName": "IMAGE", "bmc.address": "BMC", "stateReason": "REASON", "machineId": "MACHINE", "error.message": "ERROR", "error.wayOut": "WAY OUT", "layout.table": "TABLE",
	"rawBytes": "SIZE", "usedBytes": "USED", "storedBytes": "STORED", "poolStart": "FROM", "poolEnd": "TO", "runsOn": "RUNS ON", "wayOut": "WAY OUT",
	"policy.hardwareProfile": "PROFILE", "lastSeen": "LAST SEEN", "lastUsed": "LAST USED",
}

func heading(column string) string {
	if h := headings[column]; h != "" {
		return h
	}
	return strings.ToUpper(column[strings.LastIndex(column, ".")+1:])
}

func cell(v any, path string) string {
	for _, p := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[p]
	}
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		if t, err := time.Parse(time.RFC3339, x); err == nil {
			return t.Local().Format("2006-01-02 15:04:05")
		}
		return x
	case float64:
		if strings.HasSuffix(path, "Bytes") {
			return Bytes(int64(x))
		}
		return fmt.Sprint(int64(x))
	case []any:
		var parts []string
		for _, e := range x {
			parts = append(parts, fmt.Sprint(e))
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v)
}

// Bytes writes a size for people, in powers of 1000.
func Bytes(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB"}
	f, u := float64(n), 0
	for ; f >= 999.5 && u < len(units)-1; u++ {
		f /= 1000
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[u])
}

// Printable makes text from the wire harmless on a terminal: control characters but newline and tab are shown escaped.
func Printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
