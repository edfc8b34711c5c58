package figures

import (
	"context"
	"fmt"
	"strings"

	"github.com/better-compute/bcd/images/agent/disk/diskbench"
	"github.com/better-compute/bcd/images/osimage"
)

// morePackages are what the second build of the Debian image has besides.
var morePackages = []string{"jq", "tmux"}

// redeploy measures what travels when a machine gets a new build of the image that it has, and when it has nothing.
func (s *session) redeploy(ctx context.Context) error {
	first, err := s.osImage(ctx)
	if err != nil {
		return err
	}
	s.say("building the Debian image with %s, or finding it built", strings.Join(morePackages, " and "))
	second, err := osimage.Build(ctx, osimage.Config{Cache: s.Images, Log: s.Log, Options: osimage.Options{Packages: morePackages}})
	if err != nil {
		return fmt.Errorf("building the Debian image anew: %w", err)
	}
	s.say("redeploy_sent_ratio: writing both to one disk")
	r, err := diskbench.Redeploy(ctx, first.Path, second.Path, s.Work)
	if err != nil {
		return err
	}
	s.note("redeploy_sent_ratio: bytes fetched, indexes included, for a second build of the Debian image with %s, by a machine whose disk holds the first / by one whose disk holds neither: %d / %d; %d MB were left in place, %d MB moved on the disk; %.2f s instead of %.2f s, read-back included",
		strings.Join(morePackages, " and "), r.Redeploy, r.Full, r.Kept/1e6, r.Moved/1e6, r.Seconds[1], r.Seconds[0])
	s.put("redeploy_sent_ratio", float64(r.Redeploy)/float64(r.Full), 3)
	s.note("sent_over_used: bytes fetched for the whole second build, index included / bytes of the chunks that it uses, as stored: %d / %d; its packs are shared with the first", r.Full, r.Used)
	s.put("sent_over_used", float64(r.Full)/float64(r.Used), 3)
	return nil
}

// qemuImg compares the agent with qemu-img on the Debian image as distributions publish theirs, and uncompressed.
func (s *session) qemuImg(ctx context.Context) error {
	const name = "deploy_ratio_qemu_img"
	img, err := s.osImage(ctx)
	if err != nil {
		return err
	}
	for _, compressed := range []bool{false, true} {
		what := map[bool]string{false: "clusters not compressed", true: "clusters compressed by zlib, as distributions publish them"}[compressed]
		s.say("%s: writing the Debian image, %d times by the agent and %d times by qemu-img; %s", name, s.Ratios, s.Ratios, what)
		r, err := diskbench.QemuImg(ctx, img.Path, s.Work, compressed, s.Ratios)
		if err != nil {
			return err
		}
		s.note("%s: write rate of the agent / of `qemu-img convert -O raw IMG.qcow2 TARGET; sync TARGET`, %s; same loop device, filled with 0xA5 before each write, in turns; MB/s in each turn: %s; ratio of the medians %.2f",
			name, what, pairs(r), r.Ratio)
		if compressed {
			s.put(name, r.Ratio, 2)
		}
	}
	return nil
}

// pairs shows the rates of each turn.
func pairs(r diskbench.Result) string {
	var out []string
	for _, p := range r.Pairs {
		out = append(out, fmt.Sprintf("%.0f/%.0f", p[0]/1e6, p[1]/1e6))
	}
	return strings.Join(out, " ")
}
