package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Profile is a hardware profile: what machines of one make share.
type Profile struct {
	Name        string             `json:"name"`
	Description string             `json:"description,omitempty"`
	Drivers     map[string]Binding `json:"drivers,omitempty"` // by kind; Layer is filled in on resolution
	// BIOS, RAID and Firmware are what commissioning brings a machine to, through its bound drivers, and reads back.
	BIOS     map[string]json.RawMessage `json:"biosSettings,omitempty"` // text, number or true/false, by attribute
	RAID     *RAIDLayout                `json:"raidLayout,omitempty"`
	Firmware []FirmwareBaseline         `json:"firmwareBaseline,omitempty"`
	Steps    ProfileSteps               `json:"steps,omitzero"`
	// Commissioning are the tests of a commissioning; nil: DefaultTests, an empty list: none.
	Commissioning []TestSpec `json:"commissioning,omitzero"`
	KernelArgs    string     `json:"kernelArgs,omitempty"`
	BootOrder     BootPolicy `json:"bootOrder,omitempty"` // "": chosen for each machine
	KexecOK       bool       `json:"kexecProven,omitempty"`
	Updated       time.Time  `json:"updated"`
}

// RAIDLayout is every volume that a machine shall have: others are removed.
type RAIDLayout struct {
	Volumes []RAIDVolume `json:"volumes" doc:"volumes that a machine shall have, and no others"`
}

// RAIDVolume is one volume.
type RAIDVolume struct {
	Name       string   `json:"name,omitempty"`
	Level      string   `json:"level" doc:"0, 1, 5, 6, 10, 50, 60 or jbod"`
	Drives     []string `json:"drives,omitempty" doc:"ids or serial numbers; absent: the driver chooses"`
	SizeBytes  int64    `json:"sizeBytes,omitempty" doc:"0: all there is"`
	Controller string   `json:"controller,omitempty"`
	Bootable   bool     `json:"bootable,omitempty"`
}

// FirmwareBaseline is the version one component shall have, and the image that brings it there.
type FirmwareBaseline struct {
	Component string `json:"component" doc:"id of the component, as its driver lists it"`
	Version   string `json:"version" doc:"version it shall have"`
	URL       string `json:"url,omitempty" doc:"image that the BMC can fetch; absent: another version is an error"`
	SHA256    string `json:"sha256,omitempty"`
}

// ProfileSteps are a profile's own steps, by where they stand in the workflows.
type ProfileSteps struct {
	Commission  []ProfileStep `json:"commission,omitempty" doc:"of a commissioning: after the inventory, while the ramdisk runs"`
	BeforeWrite []ProfileStep `json:"beforeWrite,omitempty" doc:"of a deploy: while the ramdisk runs, before the disk is touched"`
	AfterWrite  []ProfileStep `json:"afterWrite,omitempty" doc:"of a deploy: after the image was written and configured, before its first boot"`
}

// ProfileStep is one operation of a driver.
type ProfileStep struct {
	Step    string          `json:"step" doc:"<concern>.<operation>, such as acme-cooling.setFanCurve"`
	Title   string          `json:"title,omitempty" doc:"text for people"`
	On      string          `json:"on,omitempty" doc:"site or ramdisk; absent: site"`
	With    json.RawMessage `json:"with,omitempty" doc:"arguments: an object by parameter name, or a list in order"`
	Timeout Duration        `json:"timeout,omitempty" doc:"of one attempt; absent: 10m"`
}

// Pool is a named group of machines with a policy.
type Pool struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Policy      PoolPolicy `json:"policy,omitzero"`
	Updated     time.Time  `json:"updated"`
}

// PoolPolicy is what machines in a pool start from.
type PoolPolicy struct {
	HardwareProfile string `json:"hardwareProfile,omitempty" doc:"hardware profile of machines in it that name none themselves"`
}

// ProfileStore keeps profiles and pools.
type ProfileStore interface {
	PutProfile(ctx context.Context, p *Profile) error
	Profile(ctx context.Context, name string) (*Profile, error)
	ListProfiles(ctx context.Context) ([]Profile, error)
	DeleteProfile(ctx context.Context, name string) error // Conflict while a machine or pool uses it
	PutPool(ctx context.Context, p *Pool) error
	Pool(ctx context.Context, name string) (*Pool, error)
	ListPools(ctx context.Context) ([]Pool, error)
	DeletePool(ctx context.Context, name string) error
}

// Where a profile's step may run. StepNode is a role that this product does not have yet: it is valid, and refused when a
// workflow is planned.
const (
	StepOnSite    = "site"
	StepOnRamdisk = "ramdisk"
	StepOnNode    = "node"
)

// Limits of a profile.
const (
	maxBindings  = 32
	maxConfig    = 64 << 10 // bytes of one configuration, or of one step's arguments
	maxSettings  = 512
	maxVolumes   = 64
	maxBaselines = 64
	maxSteps     = 32 // of one list
	maxTimeout   = Duration(48 * time.Hour)
)

var (
	kindRE   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	driverRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	stepRE   = regexp.MustCompile(`^([a-z][a-z0-9-]{0,31})\.([a-zA-Z_$][a-zA-Z0-9_$]{0,63})$`)
	attrRE   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._ -]{0,127}$`)
	sha256RE = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// UnmarshalJSON reads a driver's id, or an object with driver and config.
func (b *Binding) UnmarshalJSON(raw []byte) error {
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		*b = Binding{}
		return json.Unmarshal(raw, &b.Driver)
	}
	type plain Binding
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(b)); err != nil {
		return Invalid("drivers", "a binding is a driver's id or an object with driver and config").Do(`write it as "redfish" or {"driver": "redfish", "config": {…}}`)
	}
	return nil
}

// Parts gives concern and operation.
func (s ProfileStep) Parts() (concern, operation string) {
	concern, operation, _ = strings.Cut(s.Step, ".")
	return concern, operation
}

// Name is what people call the step.
func (s ProfileStep) Name() string {
	if s.Title != "" {
		return s.Title
	}
	return s.Step
}

// Validate checks the form of a profile and reports every problem, each with its field. Whether its drivers exist and
// take their configurations is for the registry to say.
func (p *Profile) Validate() error {
	errs := []error{ValidName("name", p.Name), ValidLine("description", p.Description, 500), ValidKernelArgs("kernelArgs", p.KernelArgs), ValidBootPolicy("bootOrder", p.BootOrder),
		ValidBindings(p.Drivers), validSettings(p.BIOS), p.RAID.validate(), validFirmware(p.Firmware), ValidTests("commissioning", p.Commissioning)}
	for _, list := range []struct {
		name  string
		steps []ProfileStep
	}{{"commission", p.Steps.Commission}, {"beforeWrite", p.Steps.BeforeWrite}, {"afterWrite", p.Steps.AfterWrite}} {
		if len(list.steps) > maxSteps {
			errs = append(errs, Invalid("steps."+list.name, "lists %d steps, the limit is %d", len(list.steps), maxSteps))
			continue
		}
		for i, s := range list.steps {
			errs = append(errs, s.validate(fmt.Sprintf("steps.%s.%d", list.name, i)))
		}
	}
	return errors.Join(errs...)
}

// Validate checks the form of a pool.
func (p *Pool) Validate() error {
	errs := []error{ValidName("name", p.Name), ValidLine("description", p.Description, 500)}
	if p.Policy.HardwareProfile != "" {
		errs = append(errs, ValidName("policy.hardwareProfile", p.Policy.HardwareProfile))
	}
	return errors.Join(errs...)
}

// ValidBindings checks the form of drivers by kind.
func ValidBindings(m map[string]Binding) error {
	if len(m) > maxBindings {
		return Invalid("drivers", "lists %d kinds, the limit is %d", len(m), maxBindings)
	}
	var errs []error
	for kind, b := range m {
		at := "drivers." + clip(kind, 40)
		switch {
		case !kindRE.MatchString(kind):
			errs = append(errs, Invalid("drivers", "%q is no driver kind", clip(kind, 40)).Do("use lower-case letters, digits and hyphens"))
		case !driverRE.MatchString(b.Driver):
			errs = append(errs, Invalid(at+".driver", "%q is no driver's id", clip(b.Driver, 40)).Do("choose one that bcd driver list shows"))
		case !isObject(b.Config):
			errs = append(errs, Invalid(at+".config", "is not a JSON object of at most %d bytes", maxConfig))
		}
	}
	return errors.Join(errs...)
}

// isObject accepts a JSON object, and nothing at all.
func isObject(raw json.RawMessage) bool {
	if len(bytes.TrimSpace(raw)) == 0 {
		return true
	}
	var object map[string]json.RawMessage
	return len(raw) <= maxConfig && json.Unmarshal(raw, &object) == nil && object != nil
}

func validSettings(m map[string]json.RawMessage) error {
	if len(m) > maxSettings {
		return Invalid("biosSettings", "has %d settings, the limit is %d", len(m), maxSettings)
	}
	var errs []error
	for name, raw := range m {
		var v any
		if json.Unmarshal(raw, &v) != nil || len(raw) > 1024 {
			v = nil
		}
		switch v.(type) {
		case string, float64, bool:
		default:
			errs = append(errs, Invalid("biosSettings."+clip(name, 40), "is neither text, a number, nor true or false"))
		}
		if !attrRE.MatchString(name) {
			errs = append(errs, Invalid("biosSettings", "%q is no setting's name", clip(name, 40)))
		}
	}
	return errors.Join(errs...)
}

var raidLevels = []string{"0", "1", "5", "6", "10", "50", "60", "jbod"}

func (l *RAIDLayout) validate() error {
	if l == nil {
		return nil
	}
	if len(l.Volumes) == 0 || len(l.Volumes) > maxVolumes {
		return Invalid("raidLayout.volumes", "lists %d volumes: 1 to %d are possible", len(l.Volumes), maxVolumes).Do("leave raidLayout out to let the volumes be")
	}
	var errs []error
	for i, v := range l.Volumes {
		at := fmt.Sprintf("raidLayout.volumes.%d", i)
		if !slices.Contains(raidLevels, v.Level) {
			errs = append(errs, Invalid(at+".level", "%q is no RAID level", clip(v.Level, 20)).Do("use one of %s", strings.Join(raidLevels, ", ")))
		}
		if v.SizeBytes < 0 || len(v.Drives) > 256 {
			errs = append(errs, Invalid(at, "has a negative size or more than 256 drives"))
		}
		for _, s := range append([]string{v.Name, v.Controller}, v.Drives...) {
			errs = append(errs, ValidLine(at, s, 128))
		}
	}
	return errors.Join(errs...)
}

// maxURL bounds a URL, in bytes.
const maxURL = 2000

// ValidURL accepts an http or https URL that somebody else fetches. One with a password is refused: URLs are shown and logged.
func ValidURL(field, s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(s) > maxURL:
		return Invalid(field, "is not an http or https URL of at most %d bytes", maxURL)
	case u.User != nil:
		return Invalid(field, "carries a login").Do("serve the file without one: URLs are shown and logged")
	}
	return nil
}

// holdsPassword reports whether a URL with a password stands somewhere in a JSON value.
func holdsPassword(v any) bool {
	switch v := v.(type) {
	case string:
		u, err := url.Parse(v)
		return err == nil && u.Host != "" && u.User != nil
	case []any:
		return slices.ContainsFunc(v, holdsPassword)
	case map[string]any:
		for _, member := range v {
			if holdsPassword(member) {
				return true
			}
		}
	}
	return false
}

func validFirmware(all []FirmwareBaseline) error {
	if len(all) > maxBaselines {
		return Invalid("firmwareBaseline", "lists %d components, the limit is %d", len(all), maxBaselines)
	}
	var errs []error
	seen := map[string]bool{}
	for i, f := range all {
		at := fmt.Sprintf("firmwareBaseline.%d", i)
		errs = append(errs, ValidLine(at+".component", f.Component, 128), ValidLine(at+".version", f.Version, 128))
		switch {
		case f.Component == "" || f.Version == "" || seen[f.Component]:
			errs = append(errs, Invalid(at, "names no component and version, or a component for the second time"))
		case f.URL != "" && ValidURL(at+".url", f.URL) != nil:
			errs = append(errs, ValidURL(at+".url", f.URL))
		case f.SHA256 != "" && !sha256RE.MatchString(f.SHA256):
			errs = append(errs, Invalid(at+".sha256", "is not 64 lower-case hexadecimal digits"))
		}
		seen[f.Component] = true
	}
	return errors.Join(errs...)
}

func (s ProfileStep) validate(at string) error {
	errs := []error{ValidLine(at+".title", s.Title, 120)}
	if !stepRE.MatchString(s.Step) {
		errs = append(errs, Invalid(at+".step", "%q is not of the form concern.operation", clip(s.Step, 80)).Do("write it as power.setPower"))
	}
	if s.On != "" && s.On != StepOnSite && s.On != StepOnRamdisk && s.On != StepOnNode {
		errs = append(errs, Invalid(at+".on", "%q is no place to run", clip(s.On, 20)).Do("use site or ramdisk"))
	}
	var with any
	if len(s.With) > maxConfig || len(s.With) > 0 && json.Unmarshal(s.With, &with) != nil {
		errs = append(errs, Invalid(at+".with", "is not JSON of at most %d bytes", maxConfig))
	}
	if holdsPassword(with) {
		errs = append(errs, Invalid(at+".with", "holds a URL that carries a login").Do("serve the file without one: URLs are shown and logged"))
	}
	if s.Timeout != 0 && (s.Timeout < Duration(time.Second) || s.Timeout > maxTimeout) {
		errs = append(errs, Invalid(at+".timeout", "is not between 1s and 48h"))
	}
	return errors.Join(errs...)
}
