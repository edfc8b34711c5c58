package bmctest

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The credentials every scripted BMC accepts.
const (
	User     = "admin"
	Password = "correct horse"
)

// SystemPath is the path of the one system of a scripted BMC.
const SystemPath = "/redfish/v1/Systems/1"

// Request is one request a BMC got.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         map[string]any
}

// Redfish is a scripted BMC: a tree of documents over HTTPS, with sessions, a power state and a boot override that
// follow the requests. Change the tree and the fields before the first request, or under Do.
type Redfish struct {
	*httptest.Server
	// Intercept may answer a request itself; it reports whether it did. It is called with the lock held.
	Intercept func(w http.ResponseWriter, r *http.Request, body map[string]any) bool
	// Power is the PowerState shown. PowerScript, when not empty, is shown value by value and its last value stays.
	Power       string
	PowerScript []string
	MaxSessions int    // more are refused with 503; 0: no limit
	SessionHost string // put before the path of a new session

	mu       sync.Mutex
	tree     map[string]map[string]any
	password string
	sessions map[string]bool // by token
	peak     int
	made     int
	deleted  int
	requests []Request
}

// NewRedfish starts a BMC with one system that is on. It stops with the test.
func NewRedfish(t testing.TB) *Redfish {
	t.Helper()
	b := &Redfish{Power: "On", tree: defaultTree(), password: Password, sessions: map[string]bool{}}
	b.start(t)
	return b
}

// Replay starts a BMC that answers with a recorded tree: dir/redfish/v1/.../index.json. Paths that were not recorded are
// 404.
func Replay(t testing.TB, dir string) *Redfish {
	t.Helper()
	b := &Redfish{tree: map[string]map[string]any{}, password: Password, sessions: map[string]bool{}}
	root := filepath.Join(dir, "redfish", "v1")
	err := filepath.WalkDir(root, func(file string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() != "index.json" {
			return err
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var doc map[string]any
		if json.Unmarshal(raw, &doc) != nil {
			return nil
		}
		rel, err := filepath.Rel(dir, filepath.Dir(file))
		b.tree[key("/"+filepath.ToSlash(rel))] = doc
		return err
	})
	if err != nil {
		t.Fatalf("reading the recorded tree: %v", err)
	}
	b.complete()
	b.start(t)
	return b
}

// complete adds what some recordings were cut down by: the service root and the collection of systems.
func (b *Redfish) complete() {
	const systems = "/redfish/v1/Systems"
	if !b.Has("/redfish/v1") {
		b.Doc("/redfish/v1")["Systems"] = link(systems)
	}
	if b.Has(systems) {
		return
	}
	var members []string
	for _, p := range b.Paths() {
		if path.Dir(p) == key(systems) {
			members = append(members, p)
		}
	}
	b.tree[key(systems)] = collection(systems, members...)
}

func (b *Redfish) start(t testing.TB) {
	b.Server = httptest.NewUnstartedServer(b)
	b.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are part of the tests
	b.EnableHTTP2 = false
	b.StartTLS()
	t.Cleanup(b.Close)
}

// key is the form paths are looked up by: BMCs take them with and without a slash at the end.
func key(p string) string { return strings.ToLower(strings.TrimSuffix(path.Clean(p), "/")) }

// Address is what an operator would enter.
func (b *Redfish) Address() string { return strings.TrimPrefix(b.URL, "https://") }

// Do runs f with the lock held, so that it may change fields and documents while requests come in.
func (b *Redfish) Do(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// Doc is a document of the tree, to be changed before the first request or under Do; made when absent.
func (b *Redfish) Doc(p string) map[string]any {
	d, ok := b.tree[key(p)]
	if !ok {
		d = map[string]any{"@odata.id": p}
		b.tree[key(p)] = d
	}
	return d
}

// Has reports whether a document is in the tree.
func (b *Redfish) Has(p string) bool { _, ok := b.tree[key(p)]; return ok }

// Paths are the paths of all documents, in lower case, sorted.
func (b *Redfish) Paths() []string { return slices.Sorted(maps.Keys(b.tree)) }

// Boot is the system's boot object.
func (b *Redfish) Boot() map[string]any {
	boot, _ := b.Doc(SystemPath)["Boot"].(map[string]any)
	return boot
}

// Requests are those that came in so far, of a method ("" for all).
func (b *Redfish) Requests(method string) []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Request
	for _, r := range b.requests {
		if method == "" || r.Method == method {
			out = append(out, r)
		}
	}
	return out
}

// Sessions tells how many were made and deleted, and how many lived at once.
func (b *Redfish) Sessions() (made, deleted, peak int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made, b.deleted, b.peak
}

// ExpireSessions makes the BMC forget all sessions, as a restart does. They count as deleted.
func (b *Redfish) ExpireSessions() {
	b.Do(func() { b.deleted += len(b.sessions); clear(b.sessions) })
}

// ServeHTTP answers one request.
func (b *Redfish) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var body map[string]any
	if raw, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20)); len(raw) > 0 {
		_ = json.Unmarshal(raw, &body)
	}
	b.requests = append(b.requests, Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Body: body})
	w.Header().Set("Content-Type", "application/json")
	if b.Intercept != nil && b.Intercept(w, r, body) {
		return
	}
	sessions := key(r.URL.Path) == b.sessionsPath()
	switch {
	case r.Method == http.MethodGet && key(r.URL.Path) == "/redfish/v1":
		b.reply(w, r.URL.Path)
	case r.Method == http.MethodPost && sessions:
		b.login(w, body)
	case !b.authorized(r):
		Fail(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "There is no valid session.")
	case r.Method == http.MethodDelete:
		b.logout(w, r)
	case r.Method == http.MethodGet:
		b.reply(w, r.URL.Path)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/ComputerSystem.Reset"):
		b.reset(w, r.URL.Path, body)
	case r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/Actions/VirtualMedia."):
		b.medium(w, r.URL.Path, body)
	case r.Method == http.MethodPatch && strings.Contains(key(r.URL.Path), "/virtualmedia/"):
		b.patchMedium(w, r.URL.Path, body)
	case r.Method == http.MethodPatch:
		b.patch(w, r.URL.Path, body)
	default:
		Fail(w, http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed", "Not allowed.")
	}
}

func (b *Redfish) sessionsPath() string {
	links, _ := b.tree["/redfish/v1"]["Links"].(map[string]any)
	link, _ := links["Sessions"].(map[string]any)
	id, _ := link["@odata.id"].(string)
	if id == "" {
		return "-"
	}
	return key(id)
}

func (b *Redfish) authorized(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		return b.sessions[token]
	}
	user, password, ok := r.BasicAuth()
	return ok && user == User && password == b.password
}

func (b *Redfish) login(w http.ResponseWriter, body map[string]any) {
	if body["UserName"] != User || body["Password"] != b.password {
		Fail(w, http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized", "Wrong user name or password.")
		return
	}
	if b.MaxSessions > 0 && len(b.sessions) >= b.MaxSessions {
		Fail(w, http.StatusServiceUnavailable, "IDRAC.2.1.RAC0218", "The maximum number of user sessions is reached.")
		return
	}
	b.made++
	token := fmt.Sprintf("token-%d", b.made)
	b.sessions[token] = true
	b.peak = max(b.peak, len(b.sessions))
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", b.SessionHost+b.sessionsPath()+"/"+token)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{}`)
}

func (b *Redfish) logout(w http.ResponseWriter, r *http.Request) {
	token := path.Base(r.URL.Path)
	if !b.sessions[token] {
		Fail(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "No such session.")
		return
	}
	delete(b.sessions, token)
	b.deleted++
	w.WriteHeader(http.StatusNoContent)
}

// reply sends a document, with the live power state in the system's.
func (b *Redfish) reply(w http.ResponseWriter, p string) {
	doc, ok := b.tree[key(p)]
	if !ok {
		Fail(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "Not here.")
		return
	}
	if key(p) == key(SystemPath) && b.Power != "" {
		doc = maps.Clone(doc)
		if len(b.PowerScript) > 0 {
			b.Power, b.PowerScript = b.PowerScript[0], b.PowerScript[1:]
		}
		doc["PowerState"] = b.Power
	}
	_ = json.NewEncoder(w).Encode(doc)
}

// reset changes the power state of the system whose action was posted to.
func (b *Redfish) reset(w http.ResponseWriter, action string, body map[string]any) {
	system, _, _ := strings.Cut(action, "/Actions/")
	kind, _ := body["ResetType"].(string)
	if allowed := b.resetTypes(system); allowed != nil && !slices.Contains(allowed, any(kind)) {
		Fail(w, http.StatusBadRequest, "Base.1.8.ActionParameterValueNotInList", "The value is not in the list of acceptable values.")
		return
	}
	state := "On"
	if kind == "ForceOff" || kind == "GracefulShutdown" {
		state = "Off"
	}
	switch {
	case b.Power == "":
		b.Doc(system)["PowerState"] = state
	case len(b.PowerScript) == 0:
		b.Power = state
	}
	w.WriteHeader(http.StatusNoContent)
}

// resetTypes are those a system allows, at its action or behind its ActionInfo; nil when it does not say.
func (b *Redfish) resetTypes(system string) []any {
	actions, _ := b.Doc(system)["Actions"].(map[string]any)
	reset, _ := actions["#ComputerSystem.Reset"].(map[string]any)
	if allowed, ok := reset["ResetType@Redfish.AllowableValues"].([]any); ok {
		return allowed
	}
	info, _ := reset["@Redfish.ActionInfo"].(string)
	params, _ := b.tree[key(info)]["Parameters"].([]any)
	for _, p := range params {
		if m, _ := p.(map[string]any); m["Name"] == "ResetType" {
			allowed, _ := m["AllowableValues"].([]any)
			return allowed
		}
	}
	return nil
}

// patch merges members, one level into objects.
func (b *Redfish) patch(w http.ResponseWriter, p string, body map[string]any) {
	doc, ok := b.tree[key(p)]
	if !ok {
		Fail(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "Not here.")
		return
	}
	for k, v := range body {
		if k == "Password" {
			b.password, _ = v.(string)
			clear(b.sessions) // real BMCs end the sessions of the account
			b.deleted = b.made
			continue
		}
		from, isObject := v.(map[string]any)
		into, has := doc[k].(map[string]any)
		if isObject && has {
			maps.Copy(into, from)
			continue
		}
		doc[k] = v
	}
	w.WriteHeader(http.StatusNoContent)
}

// Fail answers with a Redfish error body.
func Fail(w http.ResponseWriter, status int, id, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"code": "Base.1.8.GeneralError", "message": "See ExtendedInfo.",
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": id, "Message": message}},
	}})
}
