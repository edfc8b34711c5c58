package bmctest

import (
	"net/http"
	"path"
	"strings"
)

// CDPath is the path of the virtual CD drive of a scripted BMC.
const CDPath = "/redfish/v1/Managers/1/VirtualMedia/2"

// virtualDrive is an empty drive.
func virtualDrive(p string, types ...string) map[string]any {
	list := []any{}
	for _, t := range types {
		list = append(list, t)
	}
	action := func(name string) map[string]any { return map[string]any{"target": p + "/Actions/VirtualMedia." + name} }
	return map[string]any{
		"@odata.id": p, "Id": path.Base(p), "MediaTypes": list, "Image": nil, "Inserted": false, "ConnectedVia": "NotConnected", "WriteProtected": true,
		"Actions": map[string]any{"#VirtualMedia.InsertMedia": action("InsertMedia"), "#VirtualMedia.EjectMedia": action("EjectMedia")},
	}
}

// medium runs an action of a drive.
func (b *Redfish) medium(w http.ResponseWriter, p string, body map[string]any) {
	at, action, _ := strings.Cut(p, "/Actions/VirtualMedia.")
	if !b.Has(at) || b.drives(at)[action] == nil {
		Fail(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "Not here.")
		return
	}
	image, _ := body["Image"].(string)
	switch {
	case action == "InsertMedia" && image == "":
		Fail(w, http.StatusBadRequest, "Base.1.8.ActionParameterMissing", "The action requires the parameter Image.")
	case action == "InsertMedia" && b.Doc(at)["Inserted"] == true:
		Fail(w, http.StatusBadRequest, "Base.1.8.ResourceInUse", "The drive holds a medium.")
	case action == "EjectMedia" && b.Doc(at)["Inserted"] != true:
		Fail(w, http.StatusBadRequest, "Base.1.8.ActionNotSupported", "The drive is empty.")
	default:
		b.SetMedium(at, image)
		w.WriteHeader(http.StatusNoContent)
	}
}

// drives are the actions of a drive, by their names without what all share.
func (b *Redfish) drives(at string) map[string]any {
	out := map[string]any{}
	actions, _ := b.Doc(at)["Actions"].(map[string]any)
	for name, a := range actions {
		if short, ok := strings.CutPrefix(name, "#VirtualMedia."); ok {
			out[short] = a
		}
	}
	return out
}

// patchMedium is the form of drives without actions.
func (b *Redfish) patchMedium(w http.ResponseWriter, p string, body map[string]any) {
	if !b.Has(p) {
		Fail(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "Not here.")
		return
	}
	image, _ := body["Image"].(string)
	if body["Inserted"] == false {
		image = ""
	}
	b.SetMedium(p, image)
	w.WriteHeader(http.StatusNoContent)
}

// SetMedium shows an image, "" for none, in a drive. Call it before the first request, under Do, or in Intercept.
func (b *Redfish) SetMedium(p, image string) {
	d := b.Doc(p)
	d["Image"], d["Inserted"], d["ConnectedVia"] = image, image != "", "URI"
	if image == "" {
		d["Image"], d["ConnectedVia"] = nil, "NotConnected"
	}
}
