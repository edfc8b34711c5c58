package driver

import "encoding/json"

// Deploy puts an image on a machine and takes it off again, reporting progress in bytes.
//
//	deploy(spec)       -> {} or DeployResult
//	tearDown({wipe?})  -> {}   wipe: "" none, "discard", "overwrite", "secure"
type Deploy interface {
	Deploy(ctx *Context, spec DeploySpec) (DeployResult, error)
	TearDown(ctx *Context, options TearDownOptions) error
}

// DeploySpec is an image and the disk it goes to.
type DeploySpec struct {
	Machine string          `json:"machine"`         // id
	Image   string          `json:"image"`           // URL or catalog id
	SHA256  string          `json:"sha256"`          // lower-case hex digest of what Image names
	Disk    json.RawMessage `json:"disk,omitempty"`  // the disk's identity, as inventoried
	Seed    json.RawMessage `json:"seed,omitempty"`  // what the installed system is configured with
	Kexec   bool            `json:"kexec,omitempty"` // enter it without firmware
	// WipeOthers allows clearing other disks that carry the image's file systems.
	WipeOthers bool `json:"wipeOthers,omitempty"`
}

// DeployResult is what was written.
type DeployResult struct {
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // as read back from the disk
}

// TearDownOptions says what happens to the data.
type TearDownOptions struct {
	Wipe string `json:"wipe,omitempty"`
}

func deployKind() Kind {
	return Kind{Name: "deploy", Operations: []Operation{
		spread(op1("deploy", "spec", Deploy.Deploy), "machine", "image", "sha256", "disk", "seed", "kexec", "wipeOthers"),
		spread(op1("tearDown", "options", done1(Deploy.TearDown)), "wipe"),
	}}
}
