package ipmi

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	maxProblems = 32
	maxSensors  = 4096 // more are not counted
)

// parseRecordCount reads how many records "sdr info" shows; 0 also when it does not say.
func parseRecordCount(text string) int {
	found, _ := fields(text, "Record Count")
	n, err := strconv.ParseUint(found["Record Count"], 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

var sensorStatusRE = regexp.MustCompile(`^[a-z]{2,3}$`)

// parseSensors reads "sdr list": a row is name, reading and status between bars, and a name may hold bars itself. Lines
// that are no rows (errors between them) do not count.
func parseSensors(text string) driver.Sensors {
	s := driver.Sensors{Problems: []string{}}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		n := len(cells)
		if n < 3 || s.Count == maxSensors {
			continue
		}
		status := strings.TrimSpace(cells[n-1])
		if !sensorStatusRE.MatchString(status) {
			continue
		}
		s.Count++
		switch {
		case status == "ok":
			s.OK++
		case status == "ns": // no reading
		case len(s.Problems) < maxProblems:
			s.Problems = append(s.Problems, cmp.Or(clean(strings.Join(cells[:n-2], "|"), 64), "unnamed"))
		}
	}
	return s
}
