package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// registry is the message registry the MessageIds come from.
const registry = "Base.1.13.0."

// message is one entry of @Message.ExtendedInfo, and the HTTP status it goes with.
type message struct {
	status     int
	ID         string
	Text       string
	Args       []string
	Related    string // JSON pointer of the property, "" for the request
	Resolution string
}

// extendedInfo is the message in Redfish's spelling.
func (m message) extendedInfo() map[string]any {
	info := map[string]any{
		"@odata.type": "#Message.v1_1_2.Message", "MessageId": registry + m.ID, "Message": m.Text,
		"MessageArgs": append([]string{}, m.Args...), "Severity": "Critical", "MessageSeverity": "Critical", "Resolution": m.Resolution,
	}
	if m.Related != "" {
		info["RelatedProperties"] = []string{m.Related}
	}
	return info
}

// The messages this BMC sends, after DMTF's Base registry.

func noValidSession() message {
	return message{status: http.StatusUnauthorized, ID: "NoValidSession",
		Text:       "There is no valid session established with the implementation.",
		Resolution: "Establish a session before attempting any operations."}
}

func sessionLimit() message {
	return message{status: http.StatusServiceUnavailable, ID: "SessionLimitExceeded",
		Text:       "The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation.",
		Resolution: "Reduce the number of other sessions before trying to establish the session."}
}

func missing(path string) message {
	return message{status: http.StatusNotFound, ID: "ResourceMissingAtURI", Args: []string{path},
		Text: fmt.Sprintf("The resource at the URI %s was not found.", path), Resolution: "Place a valid resource at the URI or correct the URI and resubmit the request."}
}

func notAllowed(method string) message {
	return message{status: http.StatusMethodNotAllowed, ID: "OperationNotAllowed",
		Text: fmt.Sprintf("The HTTP method %s is not allowed on this resource.", method), Resolution: "Use a method listed in the Allow header."}
}

func malformed() message {
	return message{status: http.StatusBadRequest, ID: "MalformedJSON",
		Text: "The request body submitted was malformed JSON and could not be parsed by the receiving service.", Resolution: "Ensure that the request body is valid JSON and resubmit the request."}
}

func unknownProperty(name, at string) message {
	return message{status: http.StatusBadRequest, ID: "PropertyUnknown", Args: []string{name}, Related: at,
		Text: fmt.Sprintf("The property %s is not in the list of valid properties for the resource.", name), Resolution: "Remove the unknown property from the request body and resubmit the request if the operation failed."}
}

func readOnly(name, at string) message {
	return message{status: http.StatusBadRequest, ID: "PropertyNotWritable", Args: []string{name}, Related: at,
		Text: fmt.Sprintf("The property %s is a read only property and cannot be assigned a value.", name), Resolution: "Remove the property from the request body and resubmit the request if the operation failed."}
}

func wrongType(value, name, at string) message {
	return message{status: http.StatusBadRequest, ID: "PropertyValueTypeError", Args: []string{value, name}, Related: at,
		Text: fmt.Sprintf("The value %s for the property %s is of a different type than the property can accept.", value, name), Resolution: "Correct the value for the property in the request body and resubmit the request if the operation failed."}
}

func notInList(value, name, at string) message {
	return message{status: http.StatusBadRequest, ID: "PropertyValueNotInList", Args: []string{value, name}, Related: at,
		Text: fmt.Sprintf("The value %s for the property %s is not in the list of acceptable values.", value, name), Resolution: "Choose a value from the enumeration list that the implementation can support and resubmit the request if the operation failed."}
}

func parameterMissing(action, name string) message {
	return message{status: http.StatusBadRequest, ID: "ActionParameterMissing", Args: []string{action, name},
		Text: fmt.Sprintf("The action %s requires the parameter %s to be present in the request body.", action, name), Resolution: "Supply the action with the required parameter in the request body when the request is resubmitted."}
}

func parameterNotInList(value, name, action string) message {
	return message{status: http.StatusBadRequest, ID: "ActionParameterValueNotInList", Args: []string{value, name, action},
		Text: fmt.Sprintf("The value %s for the parameter %s in the action %s is not in the list of acceptable values.", value, name, action), Resolution: "Choose a value from the allowable values and resubmit the request."}
}

func stale() message {
	return message{status: http.StatusPreconditionFailed, ID: "PreconditionFailed",
		Text: "The ETag supplied did not match the ETag required to change this resource.", Resolution: "Try the operation again using the appropriate ETag."}
}

func inState(action, state string) message {
	return message{status: http.StatusConflict, ID: "ResourceInStandby", Args: []string{},
		Text: fmt.Sprintf("The request could not be performed because the power state is %s; %s needs another one.", state, action), Resolution: "Ensure that the resource is in the correct power state and resubmit the request."}
}

func busy() message {
	return message{status: http.StatusServiceUnavailable, ID: "ServiceTemporarilyUnavailable", Args: []string{"5"},
		Text: "The service is temporarily unavailable. Retry in 5 seconds.", Resolution: "Wait for the indicated retry duration and retry the operation."}
}

// fail sends a message as a Redfish error.
func fail(w http.ResponseWriter, m message) {
	switch m.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="Redfish"`)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	}
	reply(w, m.status, map[string]any{"error": map[string]any{
		"code": registry + m.ID, "message": m.Text, "@Message.ExtendedInfo": []any{m.extendedInfo()},
	}})
}

// reply sends a JSON body.
func reply(w http.ResponseWriter, status int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
