package virtual

import (
	"context"
	"crypto/x509"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
)

// The virtual drives of every machine, by their index in state.media.
const (
	driveCD = iota
	driveUSB
	drives
)

// driveIDs are the drives' ids in Redfish, by index.
var driveIDs = [drives]string{"CD", "USB"}

// driveTypes are the Redfish MediaTypes of the drives, by index.
var driveTypes = [drives][]string{{"CD", "DVD"}, {"USBStick"}}

// medium is what one virtual drive holds. The zero value is an empty drive.
type medium struct {
	image    string // the address it came from; "" for an empty drive
	protocol string // of the address: HTTP or HTTPS
	file     string // the copy that the guest reads; "" until it is fetched
	fault    string // why the last image could not be fetched
	strict   bool   // VerifyCertificate: the image server's certificate must be vouched for
	version  int    // raised by each change: the ETag
	cancel   context.CancelFunc
}

// inserted reports whether the guest can see the medium.
func (d medium) inserted() bool { return d.file != "" }

// order is what an insertion asks for.
type order struct {
	image, user, password string
}

// fetch is one image on its way into a drive.
type fetch struct {
	order
	drive   int
	version int // of the drive when it was asked for: another version means that nobody waits for it any more
	roots   *x509.CertPool
	strict  bool
	ctx     context.Context // ends when the drive is emptied
}

// refusal is why a drive does not take an image.
type refusal int

const (
	taken refusal = iota
	badAddress
	badScheme
	unverified // the server's certificate shall be verified, and there is none to verify it by
	occupied
	crowded
)

// insert begins to fetch an image into an empty drive. The drive counts as inserted when the whole image is here.
func (m *Machine) insert(drive int, o order) refusal {
	u, err := url.Parse(o.image)
	if err != nil || u.Host == "" || u.User != nil || len(o.image) > maxImageURL {
		return badAddress
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return badScheme
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &m.state.media[drive]
	switch {
	case d.image != "":
		return occupied
	case d.strict && u.Scheme == "https" && m.cfg.MediaRoots == nil:
		return unverified
	}
	ctx, cancel := context.WithCancel(context.Background())
	job := fetch{order: o, drive: drive, version: d.version + 1, roots: m.cfg.MediaRoots, strict: d.strict, ctx: ctx}
	select {
	case m.fetches <- job:
	default:
		cancel()
		return crowded
	}
	*d = medium{image: o.image, protocol: strings.ToUpper(u.Scheme), strict: d.strict, version: job.version, cancel: cancel}
	m.cfg.Log.Info("medium asked for", "machine", m.cfg.Name, "drive", driveIDs[drive], "image", imageName(o.image))
	return taken
}

// eject empties a drive and reports whether there was something in it.
func (m *Machine) eject(drive int) bool {
	m.mu.Lock()
	d := &m.state.media[drive]
	was := d.image != ""
	if was {
		d.cancel()
		*d = medium{strict: d.strict, version: d.version + 1}
	}
	m.mu.Unlock()
	if was {
		m.cfg.Log.Info("medium ejected", "machine", m.cfg.Name, "drive", driveIDs[drive])
		m.mediaChanged()
	}
	return was
}

// mediaChanged wakes the power loop, which shows the drives to the guest.
func (m *Machine) mediaChanged() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// mediaLoop fetches images, one after the other, until ctx ends.
func (m *Machine) mediaLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-m.fetches:
			m.fill(ctx, job)
		}
	}
}

// fill fetches one image and puts it into its drive.
func (m *Machine) fill(ctx context.Context, job fetch) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	defer context.AfterFunc(job.ctx, cancel)()
	file, err := m.download(ctx, job)
	m.mu.Lock()
	d := &m.state.media[job.drive]
	current := d.version == job.version
	if current {
		d.version++
		d.file = file
		if err != nil {
			d.cancel()
			*d = medium{fault: err.Error(), strict: d.strict, version: d.version}
		} else {
			m.files = append(m.files, file)
		}
	}
	m.mu.Unlock()
	switch {
	case !current && err == nil:
		_ = os.Remove(file) // nobody reads it
	case current && err != nil:
		m.cfg.Log.Warn("medium not fetched", "machine", m.cfg.Name, "image", imageName(job.image), "error", err)
	case current:
		m.cfg.Log.Info("medium inserted", "machine", m.cfg.Name, "drive", driveIDs[job.drive])
		m.mediaChanged()
	}
}

// Medium is the address of what a virtual drive, "CD" or "USB", holds or is fetching; "" for an empty one.
func (m *Machine) Medium(drive string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(driveIDs[:], drive); i >= 0 {
		return m.state.media[i].image
	}
	return ""
}

// files are the files in the drives, to be read by a guest that starts.
func (s state) files() (f [drives]string) {
	for i, d := range s.media {
		f[i] = d.file
	}
	return f
}

// showMedia makes the running guest see what the drives hold, and removes the files that no drive and no guest reads.
// A drive that was empty at power-on is not there for the guest: a medium put into it shows at the next start.
func (l *powerLoop) showMedia() {
	l.mu.Lock()
	now := l.state.files()
	l.mu.Unlock()
	for i, file := range now {
		if l.guest == nil || l.shown[i] == file || l.has[i] == "" {
			continue
		}
		l.warn("changing the medium", l.guest.SetMedium(i, file))
		l.shown[i] = file
	}
	l.tidy(now)
}

// tidy removes the files that neither a drive holds nor the guest reads.
func (l *powerLoop) tidy(now [drives]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = slices.DeleteFunc(l.files, func(f string) bool {
		if slices.Contains(now[:], f) || l.guest != nil && slices.Contains(l.shown[:], f) {
			return false
		}
		_ = os.Remove(f)
		return true
	})
}

// imageName is the last part of an image's address.
func imageName(image string) string {
	u, err := url.Parse(image)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// dropMedia empties the drives of a machine that is gone.
func (m *Machine) dropMedia() {
	for i := range drives {
		m.eject(i)
	}
	(&powerLoop{Machine: m}).tidy([drives]string{})
}
