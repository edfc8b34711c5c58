// Package figures measures what users wait for and pay for, and prints each figure as a line `name value`. Lines that begin
// with "# " say how the figures below them were measured.
//
// Figures are never tests: a slow machine makes them worse and nothing fails. It needs root and what the lab needs.
package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/osimage"
	"github.com/better-compute/bcd/plugins/host"
)

// Names lists every figure, in the order in which they are measured.
func Names() (out []string) {
	for _, g := range groups {
		out = append(out, g.names...)
	}
	return out
}

// Config says what to measure. Work, Images, Binary, Out and Progress are required.
type Config struct {
	Only     []string     // figures to measure; empty means all
	Boots    int          // boots, deploys and lists behind one median; default 3
	Ratios   int          // pairs of writes behind a deploy ratio; default 5
	Work     string       // folder for what is measured; emptied at the end
	Images   string       // cache of built Debian images
	Binary   string       // the program bcd, which is run as an appliance
	Plugin   host.Bundled // the plugin inside this program; none: its figures cannot be had
	Out      io.Writer    // figures and comments
	Progress io.Writer    // for a person who waits
	Log      *slog.Logger
}

// group is a set of figures that are measured together.
type group struct {
	names []string
	run   func(*session, context.Context) error
}

// groups go from what needs a quiet machine to what takes long.
var groups = []group{
	{[]string{"ramdisk_bytes", "binary_bytes"}, (*session).sizes},
	{[]string{"deploy_ratio_sparse"}, (*session).sparse},
	{[]string{"deploy_ratio_dense", "deploy_ratio_dense_http"}, (*session).dense},
	{[]string{"deploy_ratio_qemu_img"}, (*session).qemuImg},
	{[]string{"redeploy_sent_ratio", "sent_over_used"}, (*session).redeploy},
	{[]string{"plugin_start_ms", "plugin_invoke_added_ms", "plugin_calls_per_second", "plugin_rss_bytes", "plugin_host_bytes"}, (*session).plugins},
	{[]string{"rss_idle_bytes"}, (*session).idle},
	{[]string{"list_1000_ms", "list_page_1000_ms"}, (*session).lists},
	{[]string{"storm_200", "storm_200_rss_bytes"}, (*session).storm},
	{[]string{"dhcp_ratio_dnsmasq"}, (*session).dhcpDnsmasq},
	{[]string{"dhcp_ratio_kea"}, (*session).dhcpKea},
	{[]string{"tftp_ratio"}, (*session).tftp},
	{[]string{"http_ratio"}, (*session).http},
	{[]string{"agent_seconds_direct"}, (*session).direct},
	{[]string{"agent_seconds_bios", "heartbeat_seconds_reboot"}, (*session).bios},
	{[]string{"agent_seconds_uefi_pxe", "heartbeat_seconds_kexec"}, (*session).uefi},
	{[]string{"agent_seconds_uefi_http"}, (*session).uefiHTTP},
	{[]string{"rss_deploy_bytes", "agent_peak_bytes"}, (*session).peaks},
}

// session is one run.
type session struct {
	Config
	image    *osimage.Image // once built
	rss, hwm []int64        // of appliance and agent, one a deploy
}

// Run measures and prints. A figure that cannot be had is a comment, the others go on, and the error tells of it.
func Run(ctx context.Context, cfg Config) error {
	if os.Geteuid() != 0 {
		return app.Errorf(app.Forbidden, "need-root", "figures are taken of loop devices, virtual machines and a network namespace, which needs root").Do("run it as root")
	}
	for _, name := range cfg.Only {
		if !slices.Contains(Names(), name) {
			return app.Invalid("only", "there is no figure %q", name).Do("name some of: %s", strings.Join(Names(), ", "))
		}
	}
	if cfg.Boots == 0 {
		cfg.Boots = 3
	}
	if cfg.Ratios == 0 {
		cfg.Ratios = 5
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	work, err := filepath.Abs(cfg.Work)
	if err != nil {
		return fmt.Errorf("resolving the work folder: %w", err)
	}
	cfg.Work = filepath.Join(work, "run")
	if err := errors.Join(os.RemoveAll(cfg.Work), os.MkdirAll(cfg.Work, 0o700)); err != nil {
		return fmt.Errorf("making the work folder: %w", err)
	}
	defer os.RemoveAll(cfg.Work)
	s := &session{Config: cfg}
	s.note("%s", strings.Join(machineFacts(), "; "))
	var errs []error
	for _, g := range groups {
		if !s.wantsAny(g.names...) {
			continue
		}
		if err := g.run(s, ctx); err != nil {
			s.note("%s: not measured: %v", strings.Join(g.names, ", "), err)
			errs = append(errs, fmt.Errorf("measuring %s: %w", g.names[0], err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (s *session) wantsAny(names ...string) bool {
	return len(s.Only) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(s.Only, n) })
}

// put prints a figure that was asked for.
func (s *session) put(name string, value float64, decimals int) {
	if s.wantsAny(name) {
		fmt.Fprintf(s.Out, "%s %s\n", name, strconv.FormatFloat(value, 'f', decimals, 64))
	}
}

func (s *session) note(format string, args ...any) {
	fmt.Fprintln(s.Out, "# "+strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n#   "))
}

// say tells a person who waits.
func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.Progress, format+"\n", args...)
}

// osImage gives the Debian image, built at the first run.
func (s *session) osImage(ctx context.Context) (*osimage.Image, error) {
	if s.image != nil {
		return s.image, nil
	}
	s.say("building the Debian image, or finding it built")
	img, err := osimage.Build(ctx, osimage.Config{Cache: s.Images, Log: s.Log})
	if err != nil {
		return nil, fmt.Errorf("building the Debian image: %w", err)
	}
	s.image = img
	return img, nil
}

// median of at least one value: of an even number, the upper of the two in the middle.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// list shows the values behind a median.
func list(v []float64, decimals int) string {
	var out []string
	for _, x := range v {
		out = append(out, strconv.FormatFloat(x, 'f', decimals, 64))
	}
	return strings.Join(out, " ")
}
