package redfish

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

const (
	imageA = "http://192.0.2.1:7480/machines/a.iso"
	imageB = "http://192.0.2.1:7480/machines/b.iso"
)

// insertArgs are the arguments of an insertion.
func insertArgs(iso string) string { b, _ := json.Marshal([]string{iso}); return string(b) }

// bodies are those of the requests to one action or resource.
func (r *rig) bodies(method, suffix string) (out []map[string]any) {
	for _, q := range r.bmc.Requests(method) {
		if strings.HasSuffix(q.Path, suffix) {
			out = append(out, q.Body)
		}
	}
	return out
}

// on answers requests of a method to paths with a suffix.
func (r *rig) on(method, suffix string, answer func(w http.ResponseWriter, body map[string]any) bool) {
	r.bmc.Intercept = func(w http.ResponseWriter, q *http.Request, body map[string]any) bool {
		return q.Method == method && strings.HasSuffix(q.URL.Path, suffix) && answer(w, body)
	}
}

func TestInsertSendsTheImageAlone(t *testing.T) {
	r := newRig(t, bmctest.NewRedfish(t))
	r.must(t, "virtual-media", "insert", insertArgs(imageA))
	r.must(t, "virtual-media", "insert", insertArgs(imageA)) // there already
	r.must(t, "virtual-media", "insert", insertArgs(imageB))
	sent := r.bodies("POST", "InsertMedia")
	if len(sent) != 2 || !maps.Equal(sent[0], map[string]any{"Image": imageA}) || !maps.Equal(sent[1], map[string]any{"Image": imageB}) {
		t.Errorf("sent %v", sent)
	}
	if n := len(r.bodies("POST", "EjectMedia")); n != 1 {
		t.Errorf("%d ejections between two images", n)
	}
	r.must(t, "virtual-media", "eject", "[]")
	r.must(t, "virtual-media", "eject", "[]")
	if last := r.bodies("POST", "EjectMedia"); len(last) != 2 || last[1] == nil {
		t.Errorf("ejections %v: each has a body, and an empty drive gets none", last)
	}
}

// What BMCs were seen to demand or to refuse, as the answers they give. Models are those of public reports.
func TestInsertAdapts(t *testing.T) {
	missing := func(name string) func(http.ResponseWriter, map[string]any) bool {
		return func(w http.ResponseWriter, body map[string]any) bool {
			if _, has := body[name]; has {
				return false
			}
			bmctest.Fail(w, 400, "Base.1.5.ActionParameterMissing", "The action requires the parameter "+name+" to be present in the request body.")
			return true
		}
	}
	for _, tc := range []struct {
		name   string
		answer func(http.ResponseWriter, map[string]any) bool
		last   map[string]any
	}{
		{"protocol, some AMI and Nokia", missing("TransferProtocolType"), map[string]any{"Image": imageA, "TransferProtocolType": "HTTP"}},
		{"method, in words only", func(w http.ResponseWriter, body map[string]any) bool {
			if body["TransferMethod"] != nil {
				return false
			}
			bmctest.Fail(w, 400, "Base.1.4.0.GeneralError", "'TransferMethod' property which is mandatory to complete the action is missing in the request body.")
			return true
		}, map[string]any{"Image": imageA, "TransferMethod": "Stream"}},
		{"a user for an open server", func(w http.ResponseWriter, body map[string]any) bool {
			return missing("UserName")(w, body) || missing("Password")(w, body)
		}, map[string]any{"Image": imageA, "UserName": "none", "Password": "none"}},
		{"Supermicro refuses more than the image", func(w http.ResponseWriter, body map[string]any) bool {
			if len(body) == 1 {
				return false
			}
			bmctest.Fail(w, 400, "Base.1.8.PropertyUnknown", "The property Inserted is not in the list of valid properties.")
			return true
		}, map[string]any{"Image": imageA}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, bmctest.NewRedfish(t))
			r.on("POST", "InsertMedia", tc.answer)
			r.must(t, "virtual-media", "insert", insertArgs(imageA))
			if sent := r.bodies("POST", "InsertMedia"); !maps.Equal(sent[len(sent)-1], tc.last) {
				t.Errorf("sent %v, want %v at last", sent, tc.last)
			}
		})
	}
}

// The refusals that real BMCs sent for what they miss are understood, each as recorded.
func TestRecordedInsertRefusals(t *testing.T) {
	dir := os.Getenv(recordedTrees)
	if dir == "" {
		t.Skipf("%s is not set: recorded refusals are not read", recordedTrees)
	}
	for file, want := range map[string][]string{
		"credentials_required_error": {"Password", "UserName"}, "transfer_method_required_error": {"TransferMethod"},
		"transfer_proto_required_error": {"TransferProtocolType"}, "transfer_proto_required_error2": {"TransferProtocolType"}, "transfer_proto_required_error3": {"TransferProtocolType"},
	} {
		raw, err := os.ReadFile(filepath.Join(dir, "fragments", "sushy-errors-settings-tasks-media-volumes", file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		body := map[string]any{"Image": imageA}
		ok := adapt(body, parseFault(&response{status: 400, body: raw}), imageA)
		delete(body, "Image")
		if got := slices.Sorted(maps.Keys(body)); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: added %v, want %v", file, got, want)
		}
	}
}

// Drives without the action, or with one that is not there: iLO 4 takes the image alone, others want Inserted with it.
func TestInsertByPatch(t *testing.T) {
	for _, tc := range []struct {
		name    string
		actions bool
		needs   bool // Inserted
	}{{"iLO 4", false, false}, {"needs Inserted", false, true}, {"an action that is not there", true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			if !tc.actions {
				delete(bmc.Doc(bmctest.CDPath), "Actions")
			}
			bmc.Doc(bmctest.CDPath)["@odata.etag"] = `W/"1"`
			r := newRig(t, bmc)
			bmc.Intercept = func(w http.ResponseWriter, q *http.Request, body map[string]any) bool {
				switch {
				case q.Method == "POST" && strings.Contains(q.URL.Path, "/Actions/VirtualMedia"):
					bmctest.Fail(w, 405, "Base.1.8.OperationNotAllowed", "Not allowed.")
				case q.Method == "PATCH" && q.Header.Get("If-Match") == "":
					bmctest.Fail(w, 428, "Base.1.8.PreconditionRequired", "Send an entity tag.")
				case q.Method == "PATCH" && body["Image"] != nil && (body["Inserted"] == true) != tc.needs:
					bmctest.Fail(w, 400, "Base.1.8.PropertyMissing", "The property Inserted is a required property.")
				default:
					return false
				}
				return true
			}
			r.must(t, "virtual-media", "insert", insertArgs(imageA))
			r.must(t, "virtual-media", "eject", "[]")
			if bmc.Do(func() {}); bmc.Doc(bmctest.CDPath)["Inserted"] != false {
				t.Error("still inserted")
			}
		})
	}
}

// What a drive shows decides, whatever was answered.
func TestInsertReadsBack(t *testing.T) {
	ok := func(w http.ResponseWriter) bool { w.WriteHeader(204); return true }
	t.Run("accepted and forgotten", func(t *testing.T) {
		r := newRig(t, bmctest.NewRedfish(t))
		r.on("POST", "InsertMedia", func(w http.ResponseWriter, _ map[string]any) bool { return ok(w) })
		_, err := r.call("virtual-media", "insert", insertArgs(imageA))
		wants(t, err, driver.CodeNotApplied)
		if !err.Retryable || !strings.Contains(err.Message, "reaches") {
			t.Errorf("%+v", err)
		}
	})
	t.Run("shows late", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		r := newRig(t, bmc)
		r.on("POST", "InsertMedia", func(w http.ResponseWriter, _ map[string]any) bool { return ok(w) })
		reads := 0
		r.clock.onWait = func(time.Duration) {
			if reads++; reads == 5 {
				bmc.Do(func() { bmc.SetMedium(bmctest.CDPath, imageA) })
			}
		}
		r.must(t, "virtual-media", "insert", insertArgs(imageA))
	})
	t.Run("another image", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		r := newRig(t, bmc)
		r.on("POST", "InsertMedia", func(w http.ResponseWriter, _ map[string]any) bool {
			bmc.SetMedium(bmctest.CDPath, imageB)
			return ok(w)
		})
		_, err := r.call("virtual-media", "insert", insertArgs(imageA))
		if wants(t, err, driver.CodeNotApplied); strings.Contains(err.Message, "machines") || !strings.Contains(err.Message, "b.iso") {
			t.Errorf("the error shows what opens an image, or not what is in: %v", err)
		}
	})
	t.Run("the BMC says why", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		r := newRig(t, bmc)
		r.on("POST", "InsertMedia", func(w http.ResponseWriter, _ map[string]any) bool {
			bmc.Doc(bmctest.CDPath)["Status"] = map[string]any{"Health": "Critical", "Conditions": []any{map[string]any{"Message": "no route to host"}}}
			return ok(w)
		})
		_, err := r.call("virtual-media", "insert", insertArgs(imageA))
		if wants(t, err, driver.CodeNotApplied); !strings.Contains(err.Message, "no route to host") || r.clock.waited > 0 {
			t.Errorf("%v after %s", err, r.clock.waited)
		}
	})
	t.Run("iBMC loses the port", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		r := newRig(t, bmc)
		r.on("POST", "InsertMedia", func(w http.ResponseWriter, _ map[string]any) bool {
			bmc.SetMedium(bmctest.CDPath, strings.Replace(imageA, ":7480", "", 1))
			return ok(w)
		})
		r.must(t, "virtual-media", "insert", insertArgs(imageA))
	})
}

// iBMC answers 202, and a failure shows in the task alone.
func TestInsertFollowsTask(t *testing.T) {
	for _, tc := range []struct {
		name, state string
		messages    any
		code        string
	}{
		{"done", "Completed", nil, ""},
		{"one message", "Exception", map[string]any{"MessageId": "iBMC.1.0.ConnectionFailed", "Message": "Failed to connect."}, driver.CodeBMCError},
		{"a list of them", "Exception", []any{map[string]any{"MessageId": "iBMC.1.0.ConnectionOccupied", "Message": "The connection is occupied."}}, driver.CodeBMCError},
		{"for ever", "Running", nil, driver.CodeTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			task := bmc.Doc("/redfish/v1/TaskService/Tasks/1")
			task["TaskState"] = "Running"
			r := newRig(t, bmc)
			r.on("POST", "InsertMedia", func(w http.ResponseWriter, _ map[string]any) bool {
				w.Header().Set("Location", "/redfish/v1/TaskService/TaskMonitors/1")
				w.WriteHeader(202)
				_, _ = w.Write([]byte(`{"@odata.type":"#Task.v1_0_2.Task","@odata.id":"/redfish/v1/TaskService/Tasks/1","TaskState":"Running"}`))
				return true
			})
			r.clock.onWait = func(time.Duration) {
				bmc.Do(func() {
					if task["TaskState"] = tc.state; tc.messages != nil {
						task["Messages"] = tc.messages
					}
					if tc.state == "Completed" {
						bmc.SetMedium(bmctest.CDPath, imageA)
					}
				})
			}
			_, err := r.call("virtual-media", "insert", insertArgs(imageA))
			if tc.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wants(t, err, tc.code)
		})
	}
}

func TestInsertRefusals(t *testing.T) {
	refuse := func(status int, id, text string) func(http.ResponseWriter, map[string]any) bool {
		return func(w http.ResponseWriter, _ map[string]any) bool { bmctest.Fail(w, status, id, text); return true }
	}
	for _, tc := range []struct {
		name   string
		answer func(http.ResponseWriter, map[string]any) bool
		code   string
		posts  int
	}{
		{"no licence, Supermicro", refuse(403, "SMC.1.0.OemLicenseNotPassed", "Not licensed to perform this request."), "licence-missing", 1},
		{"not allowed", refuse(403, "Base.1.8.InsufficientPrivilege", "Insufficient privilege."), "access-denied", 1},
		{"HTTP is not spoken, iBMC", refuse(400, "Base.1.0.ActionParameterValueFormatError", "The value HTTP is of a different format."), driver.CodeBMCError, 1},
		{"iDRAC fails for good", refuse(500, "IDRAC.2.8.SYS408", "Unable to complete the operation."), driver.CodeBMCError, mediaTries},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, bmctest.NewRedfish(t))
			r.on("POST", "InsertMedia", tc.answer)
			_, err := r.call("virtual-media", "insert", insertArgs(imageA))
			wants(t, err, tc.code)
			if n := len(r.bodies("POST", "InsertMedia")); n != tc.posts {
				t.Errorf("%d posts, want %d", n, tc.posts)
			}
		})
	}
	t.Run("protocols the BMC names", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		actions := bmc.Doc(bmctest.CDPath)["Actions"].(map[string]any)
		actions["#VirtualMedia.InsertMedia"].(map[string]any)["TransferProtocolType@Redfish.AllowableValues"] = []any{"HTTPS", "NFS", "CIFS"}
		r := newRig(t, bmc)
		_, err := r.call("virtual-media", "insert", insertArgs(imageA))
		if wants(t, err, driver.CodeUnsupported); !strings.Contains(err.Message, "HTTPS, NFS, CIFS") {
			t.Error(err)
		}
		r.must(t, "virtual-media", "insert", insertArgs(strings.Replace(imageA, "http:", "https:", 1)))
	})
	t.Run("a remote console holds the drive", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		bmc.SetMedium(bmctest.CDPath, "rescue.iso")
		bmc.Doc(bmctest.CDPath)["ConnectedVia"] = "Applet"
		r := newRig(t, bmc)
		_, err := r.call("virtual-media", "insert", insertArgs(imageA))
		wants(t, err, driver.CodeBusy)
		r.must(t, "virtual-media", "eject", "[]")
		if bmc.Doc(bmctest.CDPath)["Inserted"] != true {
			t.Error("another's medium was ejected")
		}
	})
}

// A BMC repeats the address that it was given, or a part of it, in what it refuses: what opens the image reaches no error.
func TestInsertKeepsWhatOpensTheImage(t *testing.T) {
	const key = "q3Jx7-mN_v0kTzL9aW5yB2cD8eF1gH4i"
	const address = "http://192.0.2.1:7480/boot/" + key + "/boot.iso"
	for name, text := range map[string]string{
		"the address": "Unable to open " + address + ".", "its path": "GET /boot/" + key + "/boot.iso: 404", "escaped": "image=http%3A%2F%2F192.0.2.1%3A7480%2Fboot%2F" + key + "%2Fboot.iso",
		"the key": "no such directory: " + key, "cut off": "cannot open the remote image file at http://192.0.2.1:7480/boot/" + key[:20],
		"cut off by us": strings.Repeat("a long story ", 40)[:500-len("/boot/")-20] + "/boot/" + key + "/boot.iso",
	} {
		for _, action := range []string{"InsertMedia", "EjectMedia"} {
			bmc := bmctest.NewRedfish(t)
			if action == "EjectMedia" {
				bmc.SetMedium(bmctest.CDPath, address)
			}
			r := newRig(t, bmc)
			r.bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.Method == http.MethodGet || !strings.Contains(q.URL.Path, "VirtualMedia") {
					return false
				}
				bmctest.Fail(w, 400, "Base.1.0.GeneralError", text)
				return true
			}
			var err *driver.Error
			if action == "InsertMedia" {
				_, err = r.call("virtual-media", "insert", insertArgs(address))
			} else {
				_, err = r.call("virtual-media", "eject", "[]")
			}
			if err == nil || strings.Contains(err.Message, key[:8]) {
				t.Errorf("%s, %s: %v", action, name, err)
			}
		}
	}
}

// An iDRAC 9 says inserted for a while after an ejection, and fails at an insertion that follows at once.
func TestInsertRightAfterEject(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.SetMedium(bmctest.CDPath, imageB)
	r := newRig(t, bmc)
	fails, pauses := 2, 0
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		switch {
		case q.Method == "POST" && strings.HasSuffix(q.URL.Path, "EjectMedia"):
			w.WriteHeader(204)
		case q.Method == "POST" && strings.HasSuffix(q.URL.Path, "InsertMedia") && fails > 0:
			fails--
			bmctest.Fail(w, 500, "IDRAC.2.8.VRM0012", "The virtual media is not ready.")
		default:
			return false
		}
		return true
	}
	r.clock.onWait = func(time.Duration) {
		if pauses++; pauses == 3 {
			bmc.Do(func() { bmc.SetMedium(bmctest.CDPath, "") })
		}
	}
	r.must(t, "virtual-media", "insert", insertArgs(imageA))
	if fails != 0 || bmc.Doc(bmctest.CDPath)["Image"] != imageA {
		t.Errorf("%d failures left, image %v", fails, bmc.Doc(bmctest.CDPath)["Image"])
	}
}

// A Supermicro keeps the image's address after an ejection; Inserted and ConnectedVia tell.
func TestQuirkStaleImage(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	d := bmc.Doc(bmctest.CDPath)
	d["Image"] = imageA
	r := newRig(t, bmc)
	r.must(t, "virtual-media", "eject", "[]")
	r.must(t, "virtual-media", "insert", insertArgs(imageA))
	if n := len(r.bodies("POST", "InsertMedia")); n != 1 {
		t.Errorf("%d insertions into a drive that shows an old address", n)
	}
	for _, tc := range []struct {
		inserted, via, image any
		full                 bool
	}{{nil, "NotConnected", imageA, false}, {nil, "URI", imageA, true}, {nil, nil, imageA, false}, {nil, "URI", "None", false}, {true, "NotConnected", nil, true}, {"true", nil, nil, true}} {
		v := drive{document: &document{body: map[string]any{"Inserted": tc.inserted, "ConnectedVia": tc.via, "Image": tc.image}}}
		if v.full() != tc.full {
			t.Errorf("%+v: full is %v", tc, v.full())
		}
	}
}

// A Cisco has drives for its console alone, which refuse; the next one is tried.
func TestInsertGoesOnToTheNextDrive(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	stick := "/redfish/v1/Managers/1/VirtualMedia/1"
	bmc.Doc(stick)["MediaTypes"] = []any{"DVD"}
	r := newRig(t, bmc)
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		if q.Method == http.MethodGet || !strings.HasPrefix(q.URL.Path, stick) {
			return false
		}
		bmctest.Fail(w, 405, "Base.1.8.OperationNotAllowed", "Not allowed.")
		return true
	}
	r.must(t, "virtual-media", "insert", insertArgs(imageA))
	if bmc.Doc(bmctest.CDPath)["Image"] != imageA {
		t.Error("the second drive is empty")
	}
}

func TestSameImage(t *testing.T) {
	for _, tc := range []struct {
		shown, iso string
		same       bool
	}{
		{imageA, imageA, true}, {imageB, imageA, false}, {"HTTP://192.0.2.1:7480/machines/a.iso", imageA, true},
		{"http://192.0.2.1/machines/a.iso", imageA, true}, {"http://192.0.2.1:80/machines/a.iso", imageA, false},
		{"http://192.0.2.1:80/a.iso", "http://192.0.2.1/a.iso", true}, {"https://192.0.2.1:7480/machines/a.iso", imageA, false},
		{imageA, imageA + "?t=1", true}, {imageA + "?t=2", imageA + "?t=1", false}, {"", imageA, false}, {"%", imageA, false},
	} {
		if got := sameImage(tc.shown, tc.iso); got != tc.same {
			t.Errorf("%q and %q: %v", tc.shown, tc.iso, got)
		}
	}
}

// Every recorded machine with a virtual CD takes an image and gives it back, in the drive and the form that the tree calls
// for. Those without say so, and what to do instead.
func TestRecordedMedia(t *testing.T) {
	for _, m := range recordedMachines {
		t.Run(m.tree+" "+m.system, func(t *testing.T) {
			r := m.open(t)
			_, err := r.call("virtual-media", "insert", insertArgs(imageA))
			if m.drive == "" {
				if err == nil || err.Code != driver.CodeUnsupported && err.Code != driver.CodeBusy {
					t.Errorf("no drive gave %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			id, form, _ := strings.Cut(m.drive, " ")
			method := map[string]string{"action": "POST", "patch": "PATCH"}[form]
			writes := slices.DeleteFunc(r.bmc.Requests(method), func(q bmctest.Request) bool { return !strings.Contains(q.Path, "/VirtualMedia/"+id) })
			if len(writes) != 1 || !maps.Equal(writes[0].Body, map[string]any{"Image": imageA}) {
				t.Errorf("writes %v, want the image into %s", writes, m.drive)
			}
			r.must(t, "virtual-media", "insert", insertArgs(imageB))
			r.must(t, "virtual-media", "eject", "[]")
			r.must(t, "virtual-media", "eject", "[]")
		})
	}
}

// BMCs that mount from shares only are told apart, by name.
func TestQuirkShareOnly(t *testing.T) {
	for _, m := range recordedMachines {
		if m.tree != "supermicro-x10-f618h6-3.80" && m.tree != "fujitsu-tx1320m3-irmc-s4-9.08F" {
			continue
		}
		_, err := m.open(t).call("virtual-media", "insert", insertArgs(imageA))
		if err == nil || !strings.Contains(err.Message, "shares") {
			t.Errorf("%s: %v", m.tree, err)
		}
	}
}
