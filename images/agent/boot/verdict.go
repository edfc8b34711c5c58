package boot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
)

// skipWay is the way round what Look refuses.
const skipWay = "deploy with skipChecks where this is as it should be"

// facts are what is known of a disk that is to boot.
type facts struct {
	name    string // of the disk
	reading reading
	missing error // what the default entry of a Linux kernel lacks
	certain bool  // by what was looked for where its loader looks
	chained string
	loaders loaders
	hidden  []string
}

// verdict decides what a disk starts. It refuses where a loader that is known was read to its end and starts nothing, and every
// partition could be looked into. All else that is not known to start is a note: there are more loaders than this knows.
func (f *facts) verdict() Found {
	why, certain := f.why()
	switch {
	case why == nil:
		return Found{Entry: f.reading.entry.title, Kernel: f.reading.entry.kernel, Notes: f.rootless()}
	case f.chained != "":
		return Found{Entry: f.chained}
	case len(f.loaders.systems) > 0:
		found := Found{Entry: f.loaders.systems[0]}
		if f.reading.loader != "" {
			found.Notes = []string{fmt.Sprintf("%s was found on %s, and beside it a boot configuration of %s that starts nothing: %s", found.Entry, f.name, f.reading.loader, said(why))}
		}
		return found
	case certain && len(f.hidden) == 0:
		return Found{Refused: f.refusal(why)}
	}
	note := fmt.Sprintf("no boot entry was found on %s: %s", f.name, said(why))
	if len(f.hidden) > 0 {
		note += "; not looked into: " + clip(strings.Join(f.hidden, ", "), 200)
	}
	return Found{Notes: []string{note + " (if the system does not start, look at its console, and at the boot configuration in the image)"}}
}

// why says why nothing is known to start, nil when it is.
func (f *facts) why() (why error, certain bool) {
	switch r := &f.reading; {
	case r.err == nil:
		return f.missing, f.certain && !f.left()
	case r.loader != "":
		return r.err, r.sure && !f.loaders.legacy
	case len(f.loaders.linux) > 0:
		return noEntry("it has the boot loader " + strings.Join(f.loaders.linux, " and ") + ", and no configuration of it"), true
	case len(f.loaders.broken) > 0:
		return noEntry(f.loaders.broken[0]), true
	default:
		return r.err, false
	}
}

// left reports whether the configuration that was read may be one that an earlier loader left behind.
func (f *facts) left() bool {
	return f.reading.loader != "systemd-boot" && slices.Contains(f.loaders.linux, "systemd-boot")
}

func (f *facts) refusal(why error) error {
	reason := "no-boot-entry"
	if e, ok := app.AsError(why); ok {
		reason = e.Reason
	}
	return app.Errorf(app.Unsupported, reason, "%s cannot start: %s", f.name, said(why)).
		Do("mend the boot configuration in the image and import it again; " + skipWay)
}

// said is an error without the way out, which is of a kexec.
func said(err error) string {
	if e, ok := app.AsError(err); ok {
		return e.Message
	}
	return err.Error()
}

// rootless is a note on an entry without a root file system: some systems find theirs by the partition's type.
func (f *facts) rootless() []string {
	if hasRoot(f.reading.entry.args) {
		return nil
	}
	return []string{fmt.Sprintf("the default boot entry %q of %s names no root file system: it starts where its initial ramdisk finds one by itself", clip(f.reading.entry.title, 80), f.name)}
}

// missing tells what the default entry lacks: nil for nothing. certain: it was looked for where its loader looks.
func (r *reading) missing(m *mounted) (err error, certain bool) {
	e := &r.entry
	if r.err != nil {
		return nil, false
	}
	lacks := func(format string, args ...any) error {
		return app.Errorf(app.Unsupported, "no-boot-entry", "the default boot entry %q "+format, append([]any{clip(e.title, 80)}, args...)...)
	}
	if e.part == nil {
		return lacks("is on a device that is not on this disk"), false
	}
	for _, name := range append([]string{e.kernel}, e.initrds...) {
		if dir, size, err := e.part.stat(name); err != nil || dir || size == 0 {
			return lacks("starts %q, which is not on partition %d", clip(name, 200), e.part.number), !e.blind
		}
	}
	if root := foreignRoot(e.args); root != "" {
		return app.Errorf(app.Unsupported, "root-elsewhere", "the default boot entry %q has its root on %s, which only the machine that made the image had", clip(e.title, 80), clip(root, 80)), !e.blind
	}
	if root := e.strangeRoot(m); root != "" {
		return app.Errorf(app.Unsupported, "root-elsewhere", "the default boot entry %q has its root on %s, which is not on this disk", clip(e.title, 80), clip(root, 80)), !e.blind
	}
	return nil, false
}

// strangeRoot gives the root file system of an entry when it is named by a UUID that no partition has.
func (e *entry) strangeRoot(m *mounted) string {
	for _, f := range strings.Fields(e.args) {
		id, ok := strings.CutPrefix(f, "root=UUID=")
		if !ok {
			continue
		}
		for _, p := range m.layout.Partitions {
			if strings.EqualFold(p.FSUUID, strings.Trim(id, `"`)) {
				return ""
			}
		}
		return "UUID " + id
	}
	return ""
}

// next names the loader that a default entry starts, when it is there.
func (r *reading) next() string {
	for _, e := range r.chained {
		if dir, size, err := e.part.stat(e.chain); err == nil && !dir && size > 0 {
			return fmt.Sprintf("%s, which starts %s", e.title, e.chain)
		}
	}
	return ""
}
