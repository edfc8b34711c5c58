package figures

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
)

// marks are what a console shows on the way to the agent's session.
var marks = []struct {
	name string
	re   *regexp.Regexp
}{
	{"loader", regexp.MustCompile(`iPXE initialising`)},
	{"script", regexp.MustCompile(`boot/script`)},
	{"kernel fetched", regexp.MustCompile(`vmlinuz.*ok`)},
	{"initramfs fetched", regexp.MustCompile(`initramfs.*ok`)},
	{"program fetched", regexp.MustCompile(`Downloading\.\.\.100%`)},
	{"kernel started", regexp.MustCompile(`Linux version`)},
	{"ramdisk", regexp.MustCompile(`Run /init`)},
	{"network", regexp.MustCompile(`network is up`)},
	{"session", connected},
}

// boots watches a console: when the power came, and when each mark of a netboot was first seen.
type boots struct {
	mu  sync.Mutex // protects what follows
	all []boot
}

type boot struct {
	on   time.Time
	seen map[string]time.Duration
}

// line takes one line of the console.
func (b *boots) line(_ string, l virtual.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := l.At.Add(-l.SincePower)
	if len(b.all) == 0 || on.Sub(b.all[len(b.all)-1].on) > time.Second {
		b.all = append(b.all, boot{on, map[string]time.Duration{}})
	}
	now := b.all[len(b.all)-1]
	for _, m := range marks {
		if _, again := now.seen[m.name]; !again && m.re.MatchString(l.Text) {
			now.seen[m.name] = l.SincePower
		}
	}
}

func (b boot) String() string {
	var out []string
	for _, m := range marks {
		if d, ok := b.seen[m.name]; ok {
			out = append(out, fmt.Sprintf("%s %.1f", m.name, d.Seconds()))
		}
	}
	return strings.Join(out, ", ")
}

// before gives the last power-on before t.
func (b *boots) before(t time.Time) (time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.all) - 1; i >= 0; i-- {
		if b.all[i].on.Before(t) {
			return b.all[i].on, nil
		}
	}
	return time.Time{}, app.Errorf(app.Unavailable, "no-power-on", "the console showed nothing before %s", t)
}

// last tells the marks of the last boot of the ramdisk.
func (b *boots) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.all) - 1; i >= 0; i-- {
		if _, ok := b.all[i].seen["network"]; ok {
			return b.all[i].String()
		}
	}
	return "none seen"
}
