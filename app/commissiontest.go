package app

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// TestKind is one entry of the catalog of commissioning tests: what the agent can measure, and by which limits it judges.
type TestKind struct {
	ID      string
	Title   string // an order, as steps have
	Needs   string // what a machine must have, else the test is not run
	Params  []TestParam
	Timeout time.Duration // of one run, when nobody says
}

// TestParam is a number that a test takes.
type TestParam struct {
	Name     string
	Doc      string
	Unit     string
	Default  float64
	Given    bool // there is a default; a limit without one is off
	Min, Max float64
	Limit    bool // a measured value beyond it fails the test
}

// TestScript is the id of the test that an operator wrote.
const TestScript = "script"

// Limits of commissioning tests.
const (
	maxTests       = 32
	MaxScript      = 64 << 10 // bytes of an operator's script
	maxTestTimeout = Duration(24 * time.Hour)
)

func setting(name, unit string, value, low, high float64, doc string) TestParam {
	return TestParam{Name: name, Unit: unit, Default: value, Given: true, Min: low, Max: high, Doc: doc}
}

func limit(name, unit string, low, high float64, doc string) TestParam {
	return TestParam{Name: name, Unit: unit, Min: low, Max: high, Doc: doc, Limit: true}
}

func (p TestParam) by(value float64) TestParam {
	p.Default, p.Given = value, true
	return p
}

// TestKinds is the catalog, in the order in which tests are best run: what is quick and tells most first.
func TestKinds() []TestKind {
	const tera = 1 << 40
	return []TestKind{
		{ID: "link", Title: "Look at the network links", Needs: "a network port", Timeout: 2 * time.Minute, Params: []TestParam{
			setting("wait", "s", 0, 0, 60, "wait so long for links to come up and for the switches' LLDP, which speak every 30 s"),
			limit("minPorts", "ports", 0, 256, "ports that must have a link").by(1),
			limit("minMbps", "Mbit/s", 0, 1e6, "speed that every port with a link must have"),
			limit("halfDuplex", "ports", 0, 256, "ports that may run in half duplex").by(0),
		}},
		{ID: "smart", Title: "Ask the disks for their health", Needs: "a disk that speaks NVMe, ATA or SCSI", Timeout: 2 * time.Minute, Params: []TestParam{
			limit("maxUsed", "%", 0, 255, "life that may be used up, as an NVMe disk estimates it").by(100),
			limit("maxMediaErrors", "errors", 0, tera, "data that an NVMe disk may have lost"),
			limit("maxBadSectors", "sectors", 0, tera, "sectors that an ATA disk may have replaced or cannot read"),
			limit("maxTemperature", "°C", 0, 200, "temperature that a disk may have"),
		}},
		{ID: "throughput", Title: "Measure the network to the site", Needs: "the site's boot address", Timeout: 5 * time.Minute, Params: []TestParam{
			setting("seconds", "s", 5, 1, 300, "how long to receive"),
			setting("megabytes", "MB", 1024, 1, 16384, "after how much to stop early"),
			limit("minMBps", "MB/s", 0, 1e5, "rate that must be reached"),
		}},
		{ID: "cpu", Title: "Let every processor compute", Needs: "", Timeout: 2 * time.Hour, Params: []TestParam{
			setting("seconds", "s", 20, 1, 3600, "how long to compute"),
			limit("maxTemperature", "°C", 0, 200, "temperature that a sensor of the processor may reach").by(105),
			limit("maxThrottles", "events", 0, tera, "times that processors may throttle themselves meanwhile"),
		}},
		{ID: "disk-read", Title: "Read the disks", Needs: "a fixed disk", Timeout: 6 * time.Hour, Params: []TestParam{
			setting("seconds", "s", 10, 1, 3600, "how long to read each disk"),
			setting("megabytes", "MB", 0, 0, tera, "how much to read of each disk, at most; 0: as much as the time allows"),
			limit("minMBps", "MB/s", 0, 1e5, "rate that every disk must reach"),
			limit("maxErrors", "errors", 0, 1e6, "places that may be unreadable").by(0),
		}},
		{ID: "memory", Title: "Write patterns to memory and read them back", Needs: "", Timeout: 6 * time.Hour, Params: []TestParam{
			setting("percent", "%", 80, 1, 95, "share of the free memory to test"),
			setting("passes", "passes", 1, 1, 100, "times to test it"),
			limit("maxErrors", "words", 0, 1e6, "words that may differ").by(0),
		}},
		{ID: TestScript, Title: "Run a script", Needs: "", Timeout: 10 * time.Minute},
	}
}

// KindOfTest finds an entry of the catalog.
func KindOfTest(id string) (TestKind, bool) {
	for _, k := range TestKinds() {
		if k.ID == id {
			return k, true
		}
	}
	return TestKind{}, false
}

// Values completes parameters by their defaults. A limit that is neither given nor has a default is absent.
func (k TestKind) Values(with map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for _, p := range k.Params {
		if v, ok := with[p.Name]; ok {
			out[p.Name] = v
		} else if p.Given {
			out[p.Name] = p.Default
		}
	}
	return out
}

// TestSpec is one commissioning test, as a hardware profile lists it.
type TestSpec struct {
	Test     string             `json:"test" doc:"link, smart, throughput, cpu, disk-read, memory or script"`
	Title    string             `json:"title,omitempty" doc:"text for people"`
	With     map[string]float64 `json:"with,omitempty" doc:"parameters and limits, by name"`
	Script   string             `json:"script,omitempty" doc:"of a script: what the shell of the ramdisk runs, as root"`
	Timeout  Duration           `json:"timeout,omitempty" doc:"of the whole test; absent: the catalog's"`
	Required bool               `json:"required,omitempty" doc:"a test that could not run, or not on every disk or port, fails the commissioning too"`
}

// DefaultTests are those of a machine whose profile lists none: what takes a second and burns nothing. Anything that
// needs load or time to say something is left to the operator to ask for.
func DefaultTests() []TestSpec { return []TestSpec{{Test: "link"}, {Test: "smart"}} }

// Name is what people call the test.
func (s TestSpec) Name() string {
	if s.Title != "" {
		return s.Title
	}
	k, _ := KindOfTest(s.Test)
	return k.Title
}

// Lasts is the time after which the test is ended.
func (s TestSpec) Lasts() time.Duration {
	if s.Timeout != 0 {
		return time.Duration(s.Timeout)
	}
	k, _ := KindOfTest(s.Test)
	return k.Timeout
}

// ValidTests checks a list of tests; field is where it stands.
func ValidTests(field string, all []TestSpec) error {
	if len(all) > maxTests {
		return Invalid(field, "lists %d tests, the limit is %d", len(all), maxTests)
	}
	var errs []error
	for i, s := range all {
		errs = append(errs, s.validate(fmt.Sprintf("%s.%d", field, i)))
	}
	return errors.Join(errs...)
}

var testIDs = func() string {
	var ids []string
	for _, k := range TestKinds() {
		ids = append(ids, k.ID)
	}
	return strings.Join(ids, ", ")
}()

func (s TestSpec) validate(at string) error {
	k, ok := KindOfTest(s.Test)
	if !ok {
		return Invalid(at+".test", "%q is no commissioning test", clip(s.Test, 40)).Do("use one of %s", testIDs)
	}
	errs := []error{ValidLine(at+".title", s.Title, 120)}
	for _, name := range slices.Sorted(maps.Keys(s.With)) {
		errs = append(errs, k.validParam(at+".with."+clip(name, 40), name, s.With[name]))
	}
	if s.Timeout != 0 && (s.Timeout < Duration(time.Second) || s.Timeout > maxTestTimeout) {
		errs = append(errs, Invalid(at+".timeout", "is not between 1s and 24h"))
	}
	return errors.Join(append(errs, s.validScript(at+".script"))...)
}

// unprintableRE is what no script may hold: bytes that end it early, or hide on a terminal what it does.
var unprintableRE = regexp.MustCompile(`[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]`)

func (s TestSpec) validScript(at string) error {
	switch {
	case s.Test != TestScript && s.Script != "":
		return Invalid(at, "belongs to the test %q alone", TestScript).Do("write test: script")
	case s.Test == TestScript && strings.TrimSpace(s.Script) == "":
		return Invalid(at, "is missing").Do("write what the shell of the ramdisk runs")
	case len(s.Script) > MaxScript:
		return Invalid(at, "has %d bytes, the limit is %d", len(s.Script), MaxScript)
	case unprintableRE.MatchString(s.Script):
		return Invalid(at, "holds control characters").Do("give it as plain text")
	}
	return nil
}

func (k TestKind) validParam(at, name string, v float64) error {
	for _, p := range k.Params {
		if p.Name != name {
			continue
		}
		if !(v >= p.Min && v <= p.Max) { // NaN is neither
			return Invalid(at, "is not between %g and %g %s", p.Min, p.Max, p.Unit)
		}
		return nil
	}
	var names []string
	for _, p := range k.Params {
		names = append(names, p.Name)
	}
	e := Invalid(at, "is no parameter of the test %s", k.ID)
	if len(names) > 0 {
		return e.Do("use %s", strings.Join(names, ", "))
	}
	return e.Do("leave it out")
}
