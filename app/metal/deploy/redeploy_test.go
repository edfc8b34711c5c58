package deploy

import (
	"context"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// stored is an image store with what a test needs of it.
type stored struct {
	app.ImageStore
	images map[string]*app.Image
}

func (s stored) Image(_ context.Context, id string) (*app.Image, error) {
	if i := s.images[id]; i != nil {
		return i, nil
	}
	return nil, app.Errorf(app.NotFound, "no-image", "there is no image %q", id)
}

// TestSeeds: what the last deploy wrote to the same disk is offered, and nothing else.
func TestSeeds(t *testing.T) {
	v := &Verbs{cfg: Config{IndexPath: func(i *app.Image) string { return "/images/" + i.ID + "/index" }, Images: stored{images: map[string]*app.Image{
		"img-1": {ID: "img-1", State: "ready", Index: "aa"}, "img-2": {ID: "img-2", State: "failed"},
	}}}}
	now := time.Unix(1, 0)
	disk := app.DiskID{Serial: "S1", WWN: "0x5000c500a1b2c3d4", Name: "sda"}
	for name, c := range map[string]struct {
		last *app.Deployment
		want string
	}{
		"never deployed":              {nil, ""},
		"deployed":                    {&app.Deployment{ImageID: "img-1", Disk: disk, Written: now}, "/images/img-1/index"},
		"the kernel renamed the disk": {&app.Deployment{ImageID: "img-1", Disk: app.DiskID{Serial: "s1", WWN: "5000C500A1B2C3D4", Name: "sdb"}, Written: now}, "/images/img-1/index"},
		"to another disk":             {&app.Deployment{ImageID: "img-1", Disk: app.DiskID{Serial: "S2", Name: "sda"}, Written: now}, ""},
		"never written whole":         {&app.Deployment{ImageID: "img-1", Disk: disk}, ""},
		"the image was deleted":       {&app.Deployment{ImageID: "img-9", Disk: disk, Written: now}, ""},
		"the image is damaged":        {&app.Deployment{ImageID: "img-2", Disk: disk, Written: now}, ""},
	} {
		got := v.seeds(t.Context(), &app.Machine{Deployment: c.last}, disk)
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || got[0].IndexURL != c.want || got[0].IndexSHA256 != "aa") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestImageGone: a deploy whose image was deleted while it waited ends before the first byte.
func TestImageGone(t *testing.T) {
	images := map[string]*app.Image{"img-1": {ID: "img-1", State: "ready", Index: "aa"}, "img-2": {ID: "img-2", State: "failed", Index: "aa"}}
	v := &Verbs{cfg: Config{Images: stored{images: images}}}
	for id, want := range map[string]string{"img-1": "", "img-2": "image-gone", "img-3": "image-gone"} {
		err := v.still(t.Context(), &plan{ImageID: id, Image: "debian", Index: "aa"})
		if e, _ := app.AsError(err); want == "" && err != nil || want != "" && (e == nil || e.Reason != want || e.WayOut == "") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if v.still(t.Context(), &plan{ImageID: "img-1", Index: "bb"}) == nil {
		t.Error("an image of another index goes for the same")
	}
}

// TestFrom: a deployed machine is overwritten only when that was said.
func TestFrom(t *testing.T) {
	if s := from(&app.DeploySpec{}); len(s) != 1 || s[0] != app.StateReady {
		t.Errorf("a deploy starts from %v", s)
	}
	if s := from(&app.DeploySpec{Redeploy: true}); len(s) != 2 || s[1] != app.StateDeployed {
		t.Errorf("a redeploy starts from %v", s)
	}
}
