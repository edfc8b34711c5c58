package driverv1

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const golden = "testdata/descriptor.golden"

// TestWireIsFrozen holds names, numbers and types of everything on the wire against the golden file. A new line in it is
// a new field; a changed or missing one breaks plugins that people have built.
func TestWireIsFrozen(t *testing.T) {
	got := describeFile(File_bettercompute_driver_v1_driver_proto)
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the wire differs from %s (-frozen +now):\n%s", golden, diff)
	}
}

func describeFile(f protoreflect.FileDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", f.Package())
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			fmt.Fprintf(&b, "rpc /%s/%s %s%s %s%s\n", s.FullName(), m.Name(),
				streaming(m.IsStreamingClient()), m.Input().FullName(), streaming(m.IsStreamingServer()), m.Output().FullName())
		}
	}
	describeMessages(&b, f.Messages())
	describeEnums(&b, f.Enums())
	return b.String()
}

func describeMessages(b *strings.Builder, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		fmt.Fprintf(b, "message %s\n", m.FullName())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			fmt.Fprintf(b, "  %d %s %s %s%s\n", f.Number(), f.Name(), f.Cardinality(), f.Kind(), details(f))
		}
		describeEnums(b, m.Enums())
		describeMessages(b, m.Messages())
	}
}

// details is the type a field refers to, and the oneof it is in.
func details(f protoreflect.FieldDescriptor) string {
	var s string
	if m := f.Message(); m != nil {
		s += " " + string(m.FullName())
	}
	if e := f.Enum(); e != nil {
		s += " " + string(e.FullName())
	}
	if o := f.ContainingOneof(); o != nil {
		s += " oneof " + string(o.Name())
	}
	return s
}

func describeEnums(b *strings.Builder, enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		e := enums.Get(i)
		fmt.Fprintf(b, "enum %s\n", e.FullName())
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			fmt.Fprintf(b, "  %d %s\n", v.Number(), v.Name())
		}
	}
}

func streaming(s bool) string {
	if s {
		return "stream "
	}
	return ""
}
