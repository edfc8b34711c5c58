package agentv1

import "time"

// KindTest runs one commissioning test: Test → TestResult. A test that fails, or cannot run, is a result and no error.
const KindTest = "agent.test"

// PathStream is on the boot listener: a GET with ?bytes=N, at most MaxStream, answers so many bytes that do not compress.
const (
	PathStream = "/measure/stream"
	MaxStream  = 16384e6
)

// MaxTestLog bounds the log of one result, in bytes.
const MaxTestLog = 32 << 10

// Test is the payload of agent.test.
type Test struct {
	Test    string             `json:"test"` // id in the catalog
	With    map[string]float64 `json:"with,omitempty"`
	Script  string             `json:"script,omitempty"` // of the test "script": run by the ramdisk's shell
	Seconds int                `json:"seconds"`          // after which the test is ended
}

// Outcomes of a test, from the best to the worst.
const (
	TestPassed = "pass"
	TestNotRun = "not-run" // it could not be made; Message says why
	TestFailed = "fail"
	TestError  = "error" // the test itself went wrong
)

// TestResult is what a test found. Strings are hostile text: from devices, switches and an operator's script.
type TestResult struct {
	Test    string      `json:"test"`
	Result  string      `json:"result"`
	Message string      `json:"message,omitempty"` // a sentence: why it did not pass
	Skipped []string    `json:"skipped,omitempty"` // parts that were not tested, each with the reason
	Values  []TestValue `json:"values,omitempty"`
	Log     string      `json:"log,omitempty"` // at most MaxTestLog bytes
	Started time.Time   `json:"started"`
	Ended   time.Time   `json:"ended"`
}

// TestValue is one measured value: a number with its unit, or text.
type TestValue struct {
	Subject string  `json:"subject,omitempty"` // disk, port or sensor
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit,omitempty"`
	Text    string  `json:"text,omitempty"`  // instead of Value
	Limit   string  `json:"limit,omitempty"` // "at least 100", when it was judged
	Failed  bool    `json:"failed,omitempty"`
}
