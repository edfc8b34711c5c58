package deploy

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// roomToGrow refuses, before the first write, an image whose root cannot grow to the disk's size though its first boot is to grow
// it, as cloud-init does unless it is told not to. Nothing is known of an image without a root of a kind that is known.
func roomToGrow(img *app.Image, d *agentv1.Disk, spec *app.DeploySpec) error {
	g := img.Layout.Growth(d.Bytes)
	if g.Behind == nil || spec.SkipChecks || !growsAtBoot(spec.UserData) {
		return nil
	}
	return app.Errorf(app.InvalidInput, "root-cannot-grow", "the root of image %s, its partition %d, cannot grow on disk %s: partition %d lies behind it, and %d bytes of the disk would stay unused",
		img.Name, g.Root.Number, d.Name, g.Behind.Number, g.Unused).
		At("image").Do("use an image whose root is the last partition; where the root is to stay as it is, deploy with skipChecks, or with growpart's mode off in the user data")
}

// growsAtBoot reports whether cloud-init grows the root by such user data: it does without any (cloud-init, module growpart).
func growsAtBoot(userData string) bool {
	var c struct {
		Growpart struct {
			Mode any `yaml:"mode"`
		} `yaml:"growpart"`
	}
	if !strings.HasPrefix(userData, "#cloud-config") || yaml.Unmarshal([]byte(userData), &c) != nil {
		return true
	}
	return c.Growpart.Mode != false && c.Growpart.Mode != "off"
}
