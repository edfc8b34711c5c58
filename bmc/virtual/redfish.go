package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// The resources' addresses.
const (
	root         = "/redfish/v1"
	systemPath   = root + "/Systems/1"
	chassisPath  = root + "/Chassis/1"
	managerPath  = root + "/Managers/1"
	nicsPath     = systemPath + "/EthernetInterfaces"
	sessionsRoot = root + "/SessionService"
	sessionsPath = sessionsRoot + "/Sessions"
	resetPath    = systemPath + "/Actions/ComputerSystem.Reset"
	// maxBody bounds a request's body.
	maxBody = 64 << 10
)

// handler is the Redfish service.
func (m *Machine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /redfish", show(func() any { return map[string]any{"v1": root + "/"} }))
	mux.HandleFunc("GET "+root, show(m.serviceRoot))
	mux.HandleFunc("GET "+root+"/odata", show(m.odata))
	mux.HandleFunc("GET "+root+"/$metadata", metadata)
	for name, member := range map[string]string{"Systems": systemPath, "Chassis": chassisPath, "Managers": managerPath} {
		mux.HandleFunc("GET "+root+"/"+name, show(func() any { return collection(root+"/"+name, name, member) }))
	}
	mux.HandleFunc("GET "+systemPath, m.getSystem)
	mux.HandleFunc("PATCH "+systemPath, m.patchSystem)
	mux.HandleFunc("POST "+resetPath, m.postReset)
	mux.HandleFunc("GET "+nicsPath, show(m.ethernetCollection))
	mux.HandleFunc("GET "+nicsPath+"/{id}", m.getEthernet)
	mux.HandleFunc("GET "+chassisPath, show(m.chassis))
	mux.HandleFunc("GET "+managerPath, show(m.manager))
	m.mediaRoutes(mux)
	mux.HandleFunc("GET "+accountsRoot, show(m.accountService))
	mux.HandleFunc("GET "+accountsPath, show(func() any { return collection(accountsPath, "Accounts", accountPath) }))
	mux.HandleFunc("GET "+accountPath, show(m.account))
	mux.HandleFunc("PATCH "+accountPath, m.patchAccount)
	mux.HandleFunc("GET "+sessionsRoot, show(m.sessionService))
	mux.HandleFunc("GET "+sessionsPath, show(m.sessionCollection))
	mux.HandleFunc("POST "+sessionsPath, m.postSession)
	mux.HandleFunc("POST "+sessionsPath+"/Members", m.postSession)
	mux.HandleFunc("GET "+sessionsPath+"/{id}", m.getSession)
	mux.HandleFunc("DELETE "+sessionsPath+"/{id}", m.deleteSession)
	return m.guard(mux)
}

// guard asks for a login, bounds the body, takes the slash off a path's end (both forms name the resource), and answers
// what no route serves as Redfish does.
func (m *Machine) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if !open(r) && !m.authenticated(r) {
			fail(w, noValidSession())
			return
		}
		if p := strings.TrimSuffix(r.URL.Path, "/"); p != "" {
			r.URL.Path, r.URL.RawPath = p, ""
		}
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		var allow []string
		for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodDelete} {
			probe := r.Clone(r.Context())
			probe.Method = method
			if _, pattern := mux.Handler(probe); pattern != "" {
				allow = append(allow, method)
			}
		}
		if allow == nil {
			fail(w, missing(r.URL.Path))
			return
		}
		w.Header().Set("Allow", strings.Join(allow, ", "))
		fail(w, notAllowed(r.Method))
	})
}

// show serves a resource that cannot be written.
func show(resource func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, resource()) }
}

func (m *Machine) getSystem(w http.ResponseWriter, _ *http.Request) {
	body, tag := m.system()
	w.Header().Set("ETag", tag)
	reply(w, http.StatusOK, body)
}

// patchSystem changes the boot override, whole or not at all.
func (m *Machine) patchSystem(w http.ResponseWriter, r *http.Request) {
	var body map[string]json.RawMessage
	if !decode(w, r, &body) {
		return
	}
	m.mu.Lock()
	override, bad := m.state.boot.patched(body)
	switch {
	case !matches(r.Header.Get("If-Match"), etag(m.state.version)):
		m.mu.Unlock()
		fail(w, stale())
		return
	case bad != nil:
		m.mu.Unlock()
		fail(w, *bad)
		return
	case override != m.state.boot:
		m.state.boot = override
		m.state.version++
	}
	m.mu.Unlock()
	m.cfg.Log.Info("boot override set", "machine", m.cfg.Name, "target", string(override.Target), "enabled", string(override.Enabled), "mode", string(override.Mode))
	m.getSystem(w, r)
}

// patched gives the override after a PATCH of the system, or the message that refuses it.
func (o Override) patched(body map[string]json.RawMessage) (Override, *message) {
	refuse := func(m message) (Override, *message) { return o, &m }
	for _, name := range sorted(body) {
		if name != "Boot" {
			if slices.Contains(systemMembers, name) {
				return refuse(readOnly(name, "#/"+name))
			}
			return refuse(unknownProperty(name, "#/"+name))
		}
	}
	var boot map[string]json.RawMessage
	if raw, ok := body["Boot"]; ok && json.Unmarshal(raw, &boot) != nil {
		return refuse(wrongType(clip(raw), "Boot", "#/Boot"))
	}
	next := o
	for _, name := range sorted(boot) {
		at := "#/Boot/" + name
		var set func(string)
		switch name {
		case "BootSourceOverrideTarget":
			set = func(v string) { next.Target = Target(v) }
		case "BootSourceOverrideEnabled":
			set = func(v string) { next.Enabled = Enabled(v) }
		case "BootSourceOverrideMode":
			set = func(v string) { next.Mode = Mode(v) }
		default:
			return refuse(unknownProperty(name, at))
		}
		var value *string
		if json.Unmarshal(boot[name], &value) != nil || value == nil {
			return refuse(wrongType(clip(boot[name]), name, at))
		}
		if set(*value); !next.valid() {
			return refuse(notInList(clip([]byte(*value)), name, at))
		}
	}
	return next.settled(), nil
}

// settled makes an override that says nothing disabled in both members, and the reverse.
func (o Override) settled() Override {
	if o.Enabled == Disabled || o.Target == NoTarget {
		o.Enabled, o.Target = Disabled, NoTarget
	}
	return o
}

func (m *Machine) postReset(w http.ResponseWriter, r *http.Request) {
	var body struct{ ResetType *json.RawMessage }
	if !decode(w, r, &body) {
		return
	}
	if body.ResetType == nil {
		fail(w, parameterMissing("ComputerSystem.Reset", "ResetType"))
		return
	}
	var kind resetType
	if json.Unmarshal(*body.ResetType, &kind) != nil || !slices.Contains(resetTypes, kind) {
		fail(w, parameterNotInList(clip(*body.ResetType), "ResetType", "ComputerSystem.Reset"))
		return
	}
	switch m.request(kind) {
	case accepted:
		w.WriteHeader(http.StatusNoContent)
	case overloaded:
		fail(w, busy())
	default:
		fail(w, inState(string(kind), m.PowerState()))
	}
}

func (m *Machine) getEthernet(w http.ResponseWriter, r *http.Request) {
	for i := range m.cfg.NICs {
		if r.PathValue("id") == nicID(i) {
			reply(w, http.StatusOK, m.ethernet(i))
			return
		}
	}
	fail(w, missing(r.URL.Path))
}

func (m *Machine) postSession(w http.ResponseWriter, r *http.Request) {
	var body struct{ UserName, Password string }
	if !decode(w, r, &body) {
		return
	}
	if !m.rightPassword(body.UserName, body.Password) {
		fail(w, noValidSession())
		return
	}
	s, ok := m.sessions.open(body.UserName)
	if !ok {
		fail(w, sessionLimit())
		return
	}
	w.Header().Set("X-Auth-Token", s.token)
	w.Header().Set("Location", sessionsPath+"/"+s.id)
	reply(w, http.StatusCreated, s.resource())
}

func (m *Machine) getSession(w http.ResponseWriter, r *http.Request) {
	s, ok := m.sessions.find(r.PathValue("id"))
	if !ok {
		fail(w, missing(r.URL.Path))
		return
	}
	reply(w, http.StatusOK, s.resource())
}

func (m *Machine) deleteSession(w http.ResponseWriter, r *http.Request) {
	if !m.sessions.end(r.PathValue("id")) {
		fail(w, missing(r.URL.Path))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// decode reads one JSON object, or answers the request and reports false.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(r.Body)
	err := dec.Decode(into)
	if err == nil && !errors.Is(dec.Decode(&struct{}{}), io.EOF) {
		err = errors.New("more than one document")
	}
	if err != nil {
		fail(w, malformed())
		return false
	}
	return true
}

// etag is the tag of the system at a version of its writable members. It is weak: the body also shows the power state.
func etag(version int) string { return fmt.Sprintf(`W/"%d"`, version) }

// matches implements If-Match. Clients are known to drop the W/ of the tag they got; both forms are one version.
func matches(header, tag string) bool {
	if header == "" || strings.TrimSpace(header) == "*" {
		return true
	}
	for one := range strings.SplitSeq(header, ",") {
		if strings.TrimPrefix(strings.TrimSpace(one), "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

func sorted(m map[string]json.RawMessage) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// clip bounds what is echoed of a request.
func clip(b []byte) string {
	if len(b) > 80 {
		b = b[:80]
	}
	return strings.ToValidUTF8(string(b), "?")
}
