package redfish

import (
	"maps"
	"net/http"
	"slices"
	"testing"
)

// FuzzDrive reads virtual drives, refusals and tasks as any BMC may send them.
func FuzzDrive(f *testing.F) {
	for _, s := range []string{
		`{"Id":"CD","MediaTypes":["CD"],"Image":"http://192.0.2.1/a.iso","Inserted":true,"ConnectedVia":"URI","Actions":{"#VirtualMedia.InsertMedia":{"target":"/x"}}}`,
		`{"Id":7,"MediaTypes":"DVD","Image":["None"],"Inserted":"TRUE","ConnectedVia":null,"Status":{"Health":"Critical","Conditions":[{"Message":"x"}]}}`,
		`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.5.ActionParameterMissing","MessageArgs":["VirtualMedia.InsertMedia","TransferProtocolType"]}]}}`,
		`{"@odata.type":"#Task.v1","@odata.id":"/t","TaskState":"Exception","TaskStatus":"Warning","Messages":{"Message":"no"}}`,
	} {
		f.Add([]byte(s), "http://192.0.2.1:8080/boot/k/boot.iso")
	}
	f.Fuzz(func(t *testing.T, body []byte, iso string) {
		r := &response{header: http.Header{}, body: body, status: 400}
		request := map[string]any{"Image": iso}
		if added := adapt(request, parseFault(r), iso); added != (len(request) > 1) || request["Image"] != iso {
			t.Fatalf("added %v: %v", added, slices.Collect(maps.Keys(request)))
		}
		d, err := parseDocument(r)
		if err != nil {
			return
		}
		v := drive{d, d.text("Id"), short(d.texts("MediaTypes"))}
		if v.holds(iso) && !v.shows(iso) {
			t.Fatal("it holds the image and does not show it")
		}
		if v.byConsole() && !v.full() {
			t.Fatal("an empty drive is held by a console")
		}
		if got := candidates([]drive{v, v}, iso); len(got) != 0 && len(got) != 2 || len(ejections(v)) < 3 {
			t.Fatalf("%d of two equal drives", len(got))
		}
		if len(imageName(v.image())) > 4*120 || len(v.failed()) > 4*200 {
			t.Fatal("what a BMC says is not cut")
		}
		_ = d.failure("it")
		taskOf(r)
	})
}
