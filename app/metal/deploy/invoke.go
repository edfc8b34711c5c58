package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// operation is what image-stream serves of this package's work to steps of hardware profiles: an image on a disk, and no more.
// The verb does the rest of a deploy.
const operation = "deploy.deploy"

// seedFiles are those of first-boot data.
var seedFiles = []string{"meta-data", "user-data", "vendor-data", "network-config"}

// maxSeedFile bounds one of them, in bytes.
const maxSeedFile = 64 << 10

// asked is the argument of a step: driver.DeploySpec, whose disk is a rule and whose image is in the catalog. It is also what
// is kept of it in the workflow, with the image pinned.
type asked struct {
	Machine    string            `json:"machine,omitempty"` // name or id; "" the step's own
	Image      string            `json:"image"`             // name or id; kept: id
	SHA256     string            `json:"sha256,omitempty"`  // of the image as it was imported, or of its index; kept: the latter
	Disk       app.DiskRule      `json:"disk,omitzero"`
	Seed       map[string]string `json:"seed,omitempty"` // by file name
	Kexec      bool              `json:"kexec,omitempty"`
	WipeOthers bool              `json:"wipeOthers,omitempty"`
}

func readAsked(raw json.RawMessage) (a asked, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, app.Errorf(app.InvalidInput, driver.CodeInvalidArgs, "the argument of %s cannot be read: %w", operation, err).
			At(operation).Do("write with: {image: NAME, disk: {serial: ...}}")
	}
	return a, nil
}

// planStep checks a step as a deploy is checked, and pins its image.
func (v *Verbs) planStep(ctx context.Context, m *app.Machine, with json.RawMessage) (any, error) {
	a, err := readAsked(with)
	if err != nil {
		return nil, err
	}
	if err := a.check(m); err != nil {
		return nil, err
	}
	img, err := v.image(ctx, m, a.Image)
	if err != nil {
		return nil, err
	}
	if a.SHA256 != "" && !strings.EqualFold(a.SHA256, img.SourceSHA) && !strings.EqualFold(a.SHA256, img.Index) {
		return nil, app.Errorf(app.Conflict, "image-digest", "image %s has another digest than the step says", img.Name).At(operation).Do("correct sha256, or leave it out")
	}
	if _, err = v.target(ctx, m, a.Disk, img); err != nil && app.CodeOf(err) != app.NotFound { // without an inventory the disk is picked at delivery
		return nil, err
	}
	a.Machine, a.Image, a.SHA256 = m.ID, img.ID, img.Index
	return a, nil
}

// check refuses what the operation cannot do.
func (a *asked) check(m *app.Machine) error {
	switch {
	case a.Machine != "" && a.Machine != m.ID && a.Machine != m.Name:
		return app.Invalid(operation, "names another machine than its own").Do("leave machine out")
	case strings.Contains(a.Image, "://"):
		return app.Invalid(operation, "names an image by URL").Do("import it, and name it as the catalog does")
	case a.Image == "":
		return app.Invalid(operation, "names no image").Do("write with: {image: NAME, disk: {serial: ...}}")
	case a.Kexec:
		return app.Errorf(app.Unsupported, "kexec-unsupported", "a step does not leave the ramdisk").At(operation).Do("leave kexec out, and deploy the machine to enter its system")
	}
	for name, text := range a.Seed {
		if !slices.Contains(seedFiles, name) {
			return app.Invalid(operation, "%.40q is no file of first-boot data", name).Do("use %s", strings.Join(seedFiles, ", "))
		}
		if len(text) > maxSeedFile {
			return app.Invalid(operation, "%s is %d bytes long, the limit is %d", name, len(text), maxSeedFile)
		}
	}
	return nil
}

// target picks the disk of a rule by the stored inventory.
func (v *Verbs) target(ctx context.Context, m *app.Machine, rule app.DiskRule, img *app.Image) (agentv1.Disk, error) {
	raw, _, err := v.p.Machines.Inventory(ctx, m.ID)
	if err != nil {
		return agentv1.Disk{}, err
	}
	var inv agentv1.Inventory
	if err := json.Unmarshal(raw, &inv); err != nil {
		return agentv1.Disk{}, app.Errorf(app.Conflict, "bad-inventory", "the stored inventory cannot be read: %w", err).Do("commission %s again", m.Name)
	}
	return PickDisk(&inv, rule, img)
}

// deliverStep makes the agent's order, and notes the disk as the machine's own before its first byte changes.
func (v *Verbs) deliverStep(ctx context.Context, c workflow.Command, planned json.RawMessage) (any, error) {
	a, err := readAsked(planned)
	if err != nil {
		return nil, err
	}
	m, err := v.p.Machines.Machine(ctx, c.MachineID)
	if err != nil {
		return nil, err
	}
	if err := v.still(ctx, &plan{ImageID: a.Image, Image: a.Image, Index: a.SHA256, Disk: app.DiskID{Name: "the disk of step " + c.StepID}}); err != nil {
		return nil, err
	}
	img, err := v.image(ctx, m, a.Image)
	if err != nil {
		return nil, err
	}
	d, err := v.target(ctx, m, a.Disk, img)
	if err != nil {
		return nil, err
	}
	if err := metal.JustWritten(m, c, d.Serial, d.WWN, d.Name); err != nil {
		return nil, err
	}
	if _, err := v.p.Machines.UpdateMachine(ctx, m.ID, func(m *app.Machine) error {
		m.OwnDisks = own(m.OwnDisks, metal.Identity(d))
		return nil
	}); err != nil {
		return nil, err
	}
	w := v.order(img, metal.Target(d), a.WipeOthers, nil)
	out := agentv1.DeploySpec{Machine: m.ID, Image: w.IndexURL, SHA256: w.IndexSHA256, Disk: w.Disk, RawBytes: w.RawBytes, SectorSize: w.SectorSize, FSUUIDs: w.FSUUIDs, WipeOthers: w.WipeOthers}
	for name, text := range a.Seed {
		if out.Seed == nil {
			out.Seed = map[string][]byte{}
		}
		out.Seed[name] = []byte(text)
	}
	return out, nil
}

// Writes reports whether a hardware profile's step of the workflow puts an image on a disk, or still will.
func Writes(w *workflow.Workflow, imageID string) bool {
	return slices.ContainsFunc(w.Steps, func(s workflow.Step) bool {
		var in agentv1.DriverInvokeArgs
		var args []asked
		return s.Kind == agentv1.KindDriverInvoke && s.State != workflow.StepDone && json.Unmarshal(s.Payload, &in) == nil && in.Concern+"."+in.Operation == operation &&
			json.Unmarshal(in.Args, &args) == nil && len(args) == 1 && args[0].Image == imageID
	})
}
