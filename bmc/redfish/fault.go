package redfish

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// codeNotFound is the code for a resource or action that is not there.
const codeNotFound = "not-found"

// fault is an error answer of a BMC.
type fault struct {
	status   int
	messages []faultMessage
}

type faultMessage struct {
	id   string // "Base.1.8.PropertyValueNotInList"
	text string
	args []string
}

// parseFault reads an error body. BMCs give @Message.ExtendedInfo as a list, as one object (iDRAC) or as text, wrap it
// in "error" or not, or answer HTML: whatever cannot be read is left out.
func parseFault(r *response) fault {
	f := fault{status: r.status}
	var body map[string]any
	if json.Unmarshal(r.body, &body) != nil {
		return f
	}
	if inner, ok := body["error"].(map[string]any); ok {
		body = inner
	}
	switch info := body["@Message.ExtendedInfo"].(type) {
	case []any:
		for _, m := range info[:min(len(info), 8)] {
			f.add(m)
		}
	default:
		f.add(info)
	}
	if len(f.messages) == 0 {
		f.add(map[string]any{"MessageId": body["code"], "Message": body["message"]})
	}
	return f
}

func (f *fault) add(v any) {
	switch m := v.(type) {
	case string:
		f.messages = append(f.messages, faultMessage{text: m})
	case map[string]any:
		id, _ := m["MessageId"].(string)
		text, _ := m["Message"].(string)
		msg := faultMessage{id: id, text: text}
		args, _ := m["MessageArgs"].([]any)
		for _, a := range args {
			if s, ok := a.(string); ok {
				msg.args = append(msg.args, s)
			}
		}
		if id != "" || text != "" {
			f.messages = append(f.messages, msg)
		}
	}
}

// is reports whether a message id ends in one of the names; registries differ in prefix and version.
func (f fault) is(names ...string) bool {
	for _, m := range f.messages {
		for _, n := range names {
			if strings.HasSuffix(m.id, n) || strings.HasSuffix(m.id, n+"Error") {
				return true
			}
		}
	}
	return false
}

// says reports whether a message text or id contains one of the words.
func (f fault) says(words ...string) bool {
	for _, m := range f.messages {
		for _, w := range words {
			if strings.Contains(strings.ToLower(m.text+" "+m.id), strings.ToLower(w)) {
				return true
			}
		}
	}
	return false
}

// names reports whether a message is about a member: in its arguments, or in its text.
func (f fault) names(member string) bool {
	for _, m := range f.messages {
		if slices.Contains(m.args, member) || slices.Contains(m.args, "#/"+member) {
			return true
		}
	}
	return f.says(" "+member+" ", "'"+member+"'", "\""+member+"\"")
}

// text is what the BMC said, for a person.
func (f fault) text() string {
	var parts []string
	for _, m := range f.messages {
		t := m.text
		if t == "" {
			t = m.id
		}
		if t = clip(t, 200); t != "" {
			parts = append(parts, t)
		}
	}
	if len(parts) == 0 {
		return http.StatusText(f.status)
	}
	return clip(strings.Join(parts, " "), 400)
}

// passing reports whether the same request may work in a moment.
func (f fault) passing() bool {
	return f.status == http.StatusServiceUnavailable || f.status == http.StatusTooManyRequests ||
		f.is("ServiceTemporarilyUnavailable", "UnableToModifyDuringSystemPOST", "ResourceInUse", "ServiceInUnknownState") ||
		f.says("SYS518", "iLONotReady")
}

// err is the fault as a driver error: what was asked, and what the BMC said.
func (f fault) err(what string) *driver.Error {
	e := driver.Errorf
	switch {
	case f.is("PasswordChangeRequired"):
		return e("password-change-required", "the BMC demands that this account's password is changed before anything else")
	case f.sessionLimit():
		return e(driver.CodeBusy, "the BMC has no free session: %s; close sessions in its web interface or restart the BMC", f.text()).Again()
	case f.is("LicenseNotPassed"), f.status == http.StatusForbidden && f.says("license"):
		return e("licence-missing", "the BMC refuses %s for want of a licence: %s", what, f.text())
	case f.status == http.StatusUnauthorized:
		return e(driver.CodeAuthFailed, "the BMC refuses the user name or password")
	case f.status == http.StatusForbidden:
		return e("access-denied", "the BMC's account may not do %s: %s", what, f.text())
	case f.passing():
		return e(driver.CodeBusy, "the BMC cannot do %s just now: %s", what, f.text()).Again()
	case f.status == http.StatusNotFound:
		return e(codeNotFound, "the BMC has nothing at the place for %s: %s", what, f.text())
	case f.status == http.StatusMethodNotAllowed || f.status == http.StatusNotImplemented:
		return e(driver.CodeUnsupported, "the BMC does not offer %s: %s", what, f.text())
	case f.status >= http.StatusInternalServerError:
		return e(driver.CodeBMCError, "the BMC failed at %s with status %d: %s", what, f.status, f.text()).Again()
	}
	return e(driver.CodeBMCError, "the BMC refused %s with status %d: %s", what, f.status, f.text())
}

// sessionLimit reports an answer that means all sessions are taken: RAC0218 is iDRAC's.
func (f fault) sessionLimit() bool {
	return f.is("SessionLimitExceeded") || f.says("RAC0218", "maximum number of user sessions", "maximum number of sessions")
}
