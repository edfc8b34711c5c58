package recorder

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// Load is the last transfer of one file.
type Load struct {
	Name      string
	Proto     string // "TFTP", "HTTP"
	MAC       app.MAC
	At        time.Time // its end; zero: none
	Bytes     int64
	Size      int64 // of the file; 0: not known
	Took      time.Duration
	Status    int    // of HTTP
	Err       string // "": every byte left
	Tries     int
	Resent    int64 // datagrams of TFTP that were sent more than once
	BlockSize int   // of TFTP; 0: not known
}

// ok reports a whole transfer.
func (l Load) ok() bool { return !l.At.IsZero() && l.Err == "" }

// loaded learns from a transfer.
func (f *Facts) loaded(r app.Record, w wire) {
	base := path.Base(strings.ReplaceAll(w.Name, `\`, "/"))
	if base == f.Names.CD && base != "." {
		f.CD.loaded(r, w)
		return
	}
	loads := f.files(base)
	if toDisk := base == f.Names.ToDisk && base != "."; strings.HasPrefix(r.Kind, "http.") && (toDisk || len(loads) > 0) {
		if f.HTTPAsked = r.Time; toDisk && w.Status == http.StatusOK {
			f.Script, f.ScriptFor, f.ScriptErr, f.ScriptMAC, f.seen = r.Time, "disk", "", w.port(), r.Time
		}
	}
	if r.Kind == "http.begin" || w.Method != "" && w.Method != http.MethodGet {
		return
	}
	l := Load{Name: w.Name, Proto: "TFTP", MAC: w.port(), At: r.Time, Bytes: w.Bytes, Size: w.Size, Took: time.Duration(w.Millis) * time.Millisecond,
		Status: w.Status, Err: w.Error, Resent: w.Retries, BlockSize: w.BlockSize}
	if strings.HasPrefix(r.Kind, "http.") {
		l.Proto = "HTTP"
		switch {
		case w.Status >= 400:
			l.Err = fmt.Sprintf("it was answered with %d", w.Status)
		case l.Err == "" && w.Status != 206 && l.Size > l.Bytes:
			l.Err = "it was broken off"
		}
	}
	if w.Status == 404 || l.Proto == "TFTP" && strings.Contains(l.Err, "not found") {
		f.Missing = l
	}
	for _, to := range loads {
		l.Tries = to.Tries + 1
		*to = l
	}
}

// files are the loads that a file stands for.
func (f *Facts) files(base string) []*Load {
	n := f.Names
	switch {
	case base == "" || base == ".":
	case slices.Contains(n.Loaders, base):
		return []*Load{&f.Loader}
	case base == n.Kernel:
		return []*Load{&f.Kernel}
	case base == n.Initramfs:
		return []*Load{&f.Initramfs}
	case base == n.Whole:
		return []*Load{&f.Loader, &f.Kernel, &f.Initramfs}
	}
	return nil
}
