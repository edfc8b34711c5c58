package bcx

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// TestProtocolIsExplained holds PROTOCOL.md against what the code does: names, values, limits and codes.
func TestProtocolIsExplained(t *testing.T) {
	b, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	want := []string{
		Cookie, EnvCookie, EnvSocketDir, EnvClientCert, SocketName, StreamCapability, "bcx|" + strconv.Itoa(ProtocolVersion) + "|unix|",
		strconv.Itoa(maxHandshake>>10) + " KiB long", strconv.Itoa(maxRequest>>20) + " MiB from the host", strconv.Itoa(maxPayload>>20) + " MiB each",
		"At most " + strconv.Itoa(maxDrivers) + " drivers", strconv.Itoa(maxLogAttrs) + " further members", strconv.Itoa(maxLogLine>>10) + " KiB; of what is",
		driver.CodeInvalidConfig, driver.CodeInvalidArgs, driver.CodeUnsupported, driver.CodeUnreachable, driver.CodeAuthFailed, driver.CodeNoCredentials,
		driver.CodePinMismatch, driver.CodeUntrusted, driver.CodeBMCError, driver.CodeBusy, driver.CodeTimeout, driver.CodeCancelled,
		driver.CodeNotApplied, driver.CodeDriverError, driver.CodeUnavailable, codeNotFound,
	}
	for _, m := range driverv1.DriverPlugin_ServiceDesc.Methods {
		want = append(want, "### "+m.MethodName)
	}
	for _, s := range driverv1.DriverPlugin_ServiceDesc.Streams {
		want = append(want, "### "+s.StreamName)
	}
	fields := (&driverv1.DriverManifest{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		want = append(want, "`"+string(fields.Get(i).Name())+"`")
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("PROTOCOL.md does not say %q", w)
		}
	}
}
