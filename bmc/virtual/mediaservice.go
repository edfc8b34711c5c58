package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// Where the drives are shown: below the manager, as older BMCs do, and below the system, as newer ones do. Both show the
// same drives.
const (
	managerMedia = managerPath + "/VirtualMedia"
	systemMedia  = systemPath + "/VirtualMedia"
	insertAction = "VirtualMedia.InsertMedia"
	ejectAction  = "VirtualMedia.EjectMedia"
)

// mediaRoutes adds the drives to the service.
func (m *Machine) mediaRoutes(mux *http.ServeMux) {
	for _, at := range []string{managerMedia, systemMedia} {
		mux.HandleFunc("GET "+at, show(func() any {
			return collection(at, "VirtualMedia", at+"/"+driveIDs[driveCD], at+"/"+driveIDs[driveUSB])
		}))
		mux.HandleFunc("GET "+at+"/{drive}", onDrive(func(w http.ResponseWriter, _ *http.Request, drive int) { m.getDrive(w, at, drive) }))
		mux.HandleFunc("PATCH "+at+"/{drive}", onDrive(func(w http.ResponseWriter, r *http.Request, drive int) { m.patchDrive(w, r, at, drive) }))
		mux.HandleFunc("POST "+at+"/{drive}/Actions/"+insertAction, onDrive(m.postInsert))
		mux.HandleFunc("POST "+at+"/{drive}/Actions/"+ejectAction, onDrive(m.postEject))
	}
}

// onDrive finds the drive that a path names.
func onDrive(serve func(w http.ResponseWriter, r *http.Request, drive int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		drive := slices.Index(driveIDs[:], r.PathValue("drive"))
		if drive < 0 {
			fail(w, missing(r.URL.Path))
			return
		}
		serve(w, r, drive)
	}
}

func (m *Machine) getDrive(w http.ResponseWriter, at string, drive int) {
	m.mu.Lock()
	d := m.state.media[drive]
	m.mu.Unlock()
	w.Header().Set("ETag", etag(d.version))
	reply(w, http.StatusOK, d.resource(at, drive))
}

// resource is a drive as Redfish shows it.
func (d medium) resource(at string, drive int) any {
	p := at + "/" + driveIDs[drive]
	r := resource(p, "#VirtualMedia.v1_4_0.VirtualMedia", driveIDs[drive], "Virtual "+driveIDs[drive])
	r["@odata.etag"] = etag(d.version)
	r["MediaTypes"] = driveTypes[drive]
	r["Image"], r["ImageName"], r["TransferProtocolType"], r["TransferMethod"] = nil, nil, nil, nil
	r["Inserted"], r["ConnectedVia"], r["WriteProtected"], r["VerifyCertificate"] = d.inserted(), "NotConnected", true, d.strict
	if d.image != "" {
		r["Image"], r["ImageName"], r["TransferProtocolType"], r["TransferMethod"] = d.image, imageName(d.image), d.protocol, "Stream"
	}
	if d.inserted() {
		r["ConnectedVia"] = "URI"
	}
	r["Status"] = status(state{fault: d.fault})
	action := func(name string) object { return object{"target": p + "/Actions/" + name} }
	insert := action(insertAction)
	insert["TransferProtocolType@Redfish.AllowableValues"] = []string{"HTTP", "HTTPS"}
	insert["TransferMethod@Redfish.AllowableValues"] = []string{"Stream"}
	r["Actions"] = object{"#" + insertAction: insert, "#" + ejectAction: action(ejectAction)}
	return r
}

// insertion is the body of InsertMedia, and with null for Image of a PATCH that empties the drive.
type insertion struct {
	Image                *string
	Inserted             *bool
	WriteProtected       *bool
	TransferMethod       *string
	TransferProtocolType *string
	UserName, Password   *string
	VerifyCertificate    *bool
}

// parseInsertion reads the members of a body strictly; unknown words a member that is not among them.
func parseInsertion(body map[string]json.RawMessage, unknown func(name string) message) (in insertion, bad *message) {
	members := map[string]any{
		"Image": &in.Image, "Inserted": &in.Inserted, "WriteProtected": &in.WriteProtected, "TransferMethod": &in.TransferMethod,
		"TransferProtocolType": &in.TransferProtocolType, "UserName": &in.UserName, "Password": &in.Password, "VerifyCertificate": &in.VerifyCertificate,
	}
	for _, name := range sorted(body) {
		into, known := members[name]
		var m message
		switch {
		case !known:
			m = unknown(name)
		case json.Unmarshal(body[name], into) != nil:
			m = parameterWrongType(clip(body[name]), name, insertAction)
		default:
			continue
		}
		return in, &m
	}
	return in, in.check()
}

// check refuses values that this BMC does not have.
func (in insertion) check() *message {
	refuse := func(value, name string) *message {
		m := parameterNotInList(value, name, insertAction)
		return &m
	}
	switch {
	case in.WriteProtected != nil && !*in.WriteProtected:
		return refuse("false", "WriteProtected")
	case in.TransferMethod != nil && *in.TransferMethod != "Stream":
		return refuse(clip([]byte(*in.TransferMethod)), "TransferMethod")
	case in.TransferProtocolType != nil && *in.TransferProtocolType != "HTTP" && *in.TransferProtocolType != "HTTPS":
		return refuse(clip([]byte(*in.TransferProtocolType)), "TransferProtocolType")
	}
	return nil
}

func (m *Machine) postInsert(w http.ResponseWriter, r *http.Request, drive int) {
	var body map[string]json.RawMessage
	if !decode(w, r, &body) {
		return
	}
	in, bad := parseInsertion(body, func(name string) message { return unknownParameter(name, insertAction) })
	switch {
	case bad != nil:
		fail(w, *bad)
	case in.Image == nil || *in.Image == "":
		fail(w, parameterMissing(insertAction, "Image"))
	case in.Inserted != nil && !*in.Inserted:
		fail(w, parameterNotInList("false", "Inserted", insertAction))
	default:
		m.answerInsert(w, drive, in)
	}
}

// answerInsert begins an insertion and answers 204, or says why not.
func (m *Machine) answerInsert(w http.ResponseWriter, drive int, in insertion) {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	image := *in.Image
	switch m.insert(drive, order{image: image, user: text(in.UserName), password: text(in.Password)}) {
	case taken:
		w.WriteHeader(http.StatusNoContent)
	case badAddress, badScheme:
		fail(w, parameterFormat(clip([]byte(image)), "Image", insertAction))
	case unverified:
		fail(w, untrustedImage(clip([]byte(image))))
	case occupied:
		fail(w, inUse(driveIDs[drive]))
	default:
		fail(w, busy())
	}
}

func (m *Machine) postEject(w http.ResponseWriter, r *http.Request, drive int) {
	var body map[string]json.RawMessage
	if r.ContentLength != 0 && !decode(w, r, &body) {
		return
	}
	for name := range body {
		fail(w, unknownParameter(name, ejectAction))
		return
	}
	if !m.eject(drive) {
		fail(w, nothingInserted(driveIDs[drive]))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// patchDrive is the form of BMCs without actions: an Image inserts, null or Inserted false ejects.
func (m *Machine) patchDrive(w http.ResponseWriter, r *http.Request, at string, drive int) {
	var body map[string]json.RawMessage
	if !decode(w, r, &body) {
		return
	}
	in, bad := parseInsertion(body, func(name string) message { return unknownProperty(name, "#/"+name) })
	if bad != nil {
		fail(w, *bad)
		return
	}
	if !m.setStrict(r.Header.Get("If-Match"), drive, in.VerifyCertificate) {
		fail(w, stale())
		return
	}
	_, named := body["Image"]
	switch {
	case in.Image != nil && *in.Image != "" && (in.Inserted == nil || *in.Inserted):
		m.answerInsert(w, drive, in)
		return
	case named || in.Inserted != nil && !*in.Inserted:
		m.eject(drive)
	case in.Inserted != nil:
		fail(w, parameterMissing(insertAction, "Image"))
		return
	}
	m.getDrive(w, at, drive)
}

// setStrict sets VerifyCertificate, nil for what it is, of a drive whose tag matches.
func (m *Machine) setStrict(match string, drive int, strict *bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &m.state.media[drive]
	if !matches(match, etag(d.version)) {
		return false
	}
	if strict != nil && *strict != d.strict {
		d.strict = *strict
		// A fetch under way keeps the version it waits for.
		if d.image == "" || d.inserted() {
			d.version++
		}
	}
	return true
}

// The messages about media, after DMTF's Base registry.

func unknownParameter(name, action string) message {
	return message{status: http.StatusBadRequest, ID: "ActionParameterUnknown", Args: []string{action, name},
		Text: fmt.Sprintf("The action %s was submitted with the invalid parameter %s.", action, name), Resolution: "Correct the invalid parameter and resubmit the request if the operation failed."}
}

func parameterWrongType(value, name, action string) message {
	return message{status: http.StatusBadRequest, ID: "ActionParameterValueTypeError", Args: []string{value, name, action},
		Text: fmt.Sprintf("The value %s for the parameter %s in the action %s is of a different type than the parameter can accept.", value, name, action), Resolution: "Correct the value for the parameter in the request body and resubmit the request if the operation failed."}
}

func parameterFormat(value, name, action string) message {
	return message{status: http.StatusBadRequest, ID: "ActionParameterValueFormatError", Args: []string{value, name, action},
		Text: fmt.Sprintf("The value %s for the parameter %s in the action %s is of a different format than the parameter can accept.", value, name, action), Resolution: "Correct the value for the parameter in the request body and resubmit the request if the operation failed."}
}

func untrustedImage(image string) message {
	return message{status: http.StatusBadRequest, ID: "CouldNotEstablishConnection", Args: []string{image},
		Text: fmt.Sprintf("The service failed to establish a connection with the URI %s: its certificate cannot be verified.", image), Resolution: "Import the certificate of the image server, or turn VerifyCertificate off."}
}

func inUse(drive string) message {
	return message{status: http.StatusBadRequest, ID: "ResourceInUse", Args: []string{},
		Text: fmt.Sprintf("The change to the requested resource failed because the drive %s holds a medium.", drive), Resolution: "Eject the medium and resubmit the request."}
}

func nothingInserted(drive string) message {
	return message{status: http.StatusBadRequest, ID: "ActionNotSupported", Args: []string{ejectAction},
		Text: fmt.Sprintf("The action %s is not supported while the drive %s is empty.", ejectAction, drive), Resolution: "Insert a medium first."}
}
