package site_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/web/api"
)

const passphrase = "correct horse battery staple"

// names lists all files below a directory.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Case 61: what was written a moment ago is in the backup of a running site, and a site starts from it alone.
func TestBackupHoldsWhatWasJustWritten(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	r.start("")
	r.must(http.MethodPut, "/api/v1/secrets/just-now", map[string]string{"value": "x"}, nil)
	var b bytes.Buffer
	if err := site.Backup(t.Context(), r.dir, passphrase, &b); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b.Bytes(), []byte("SQLite format")) || !bytes.HasPrefix(b.Bytes(), []byte("age-encryption.org/")) {
		t.Error("the backup is readable without its passphrase")
	}
	for _, f := range names(t, r.dir) {
		if strings.HasPrefix(f, "backup-") {
			t.Errorf("the backup left %s behind", f)
		}
	}
	r.stop()

	dir := filepath.Join(shortDir(t), "new")
	syscall.ForkLock.RLock() // as in moveBMC: the next appliance needs the store's lock
	missing, err := site.Restore(t.Context(), bytes.NewReader(b.Bytes()), dir, passphrase)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) == 0 {
		t.Error("no chunk is said to be missing")
	}
	for _, f := range missing {
		if _, err := os.Stat(filepath.Join(r.dir, "images", f)); err != nil {
			t.Errorf("%s is said to be missing and was never there", f)
		}
	}
	if got := names(t, dir); !slices.Contains(got, "bcd.db") || !slices.Contains(got, "keys/site.key") || slices.ContainsFunc(got, func(f string) bool { return strings.HasSuffix(f, "-wal") || strings.HasPrefix(f, "restore-") }) {
		t.Errorf("restored %v", got)
	}
	again := newRig(t, dir)
	again.token = r.token
	again.start("")
	var secrets api.List[app.SealedSecret]
	again.must(http.MethodGet, "/api/v1/secrets", nil, &secrets)
	if !slices.ContainsFunc(secrets.Items, func(s app.SealedSecret) bool { return s.Name == "just-now" }) {
		t.Errorf("restored secrets: %+v", secrets.Items)
	}
	if m := again.machine(machineName); m.State != app.StateReady {
		t.Errorf("restored machine is %s", m.State)
	}
	var img app.Image
	again.must(http.MethodGet, "/api/v1/images/"+imageName, nil, &img)
	if img.State != "failed" || !strings.Contains(img.Reason, "missing") {
		t.Errorf("an image without its bytes is %s: %s", img.State, img.Reason)
	}

	if _, err := site.Restore(t.Context(), bytes.NewReader(b.Bytes()), dir, passphrase); app.CodeOf(err) != app.Conflict {
		t.Errorf("restoring over a site gave %v", err)
	}
}

func TestDamagedArchivesLeaveNothing(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	db, err := os.ReadFile(filepath.Join(r.dir, "bcd.db"))
	if err != nil {
		t.Fatal(err)
	}
	b := archive(t, entry{tar.Header{Name: "bcd.db"}, db}, entry{tar.Header{Name: "keys/site.key"}, []byte("key")}, entry{tar.Header{Name: "chunks.txt"}, nil}).Bytes()
	if _, err := site.Restore(t.Context(), bytes.NewReader(b), filepath.Join(shortDir(t), "good"), passphrase); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(shortDir(t), "bad")
	if _, err := site.Restore(t.Context(), bytes.NewReader(b), dir, "another passphrase"); reasonOf(err) != "cannot-decrypt" {
		t.Errorf("a wrong passphrase gave %v", err)
	}
	for _, n := range []int{0, 10, 100, 300, len(b) / 2, len(b) - 4096, len(b) - 1} {
		if _, err := site.Restore(t.Context(), bytes.NewReader(b[:n]), dir, passphrase); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("a backup of %d bytes out of %d gave %v", n, len(b), err)
		}
	}
	for _, at := range []int{20, 200, len(b) / 3, len(b) / 2, len(b) - 1} {
		flipped := slices.Clone(b)
		flipped[at] ^= 1
		if _, err := site.Restore(t.Context(), bytes.NewReader(flipped), dir, passphrase); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("a backup damaged at byte %d gave %v", at, err)
		}
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("failed restores left %v", left)
	}
}

func reasonOf(err error) string {
	e, ok := app.AsError(err)
	if !ok {
		return ""
	}
	return e.Reason
}

func TestBackupNeedsASiteAndAPassphrase(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	if err := site.Backup(t.Context(), r.dir, passphrase, io.Discard); app.CodeOf(err) != app.Unavailable {
		t.Errorf("no site gave %v", err)
	}
	r.start("")
	var b bytes.Buffer
	if err := site.Backup(t.Context(), r.dir, "short", &b); app.CodeOf(err) != app.InvalidInput || b.Len() > 0 {
		t.Errorf("a short passphrase gave %v and %d bytes", err, b.Len())
	}
	st, err := os.Stat(filepath.Join(r.dir, "local.sock"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the local socket: %v, %v", st.Mode(), err)
	}
	// A site that was killed leaves its socket, and the next one takes its place.
	r.kill()
	r.start("")
	if err := site.Backup(t.Context(), r.dir, passphrase, io.Discard); err != nil {
		t.Error(err)
	}
}

// entry is one file of an archive.
type entry struct {
	tar.Header
	body []byte
}

// archive makes one as only somebody with the passphrase can.
func archive(t *testing.T, entries ...entry) *bytes.Buffer {
	t.Helper()
	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		t.Fatal(err)
	}
	to.SetWorkFactor(10)
	var b bytes.Buffer
	enc, err := age.Encrypt(&b, to)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(enc)
	for _, e := range entries {
		if e.Typeflag == 0 {
			e.Typeflag, e.Size = tar.TypeReg, int64(len(e.body))
		}
		e.Mode = 0o600
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.body[:e.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), enc.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

// hostile is an archive whose files say "evil".
func hostile(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var entries []entry
	for _, h := range headers {
		entries = append(entries, entry{h, []byte("evil")})
	}
	return archive(t, entries...)
}

func TestHostileArchivesLeaveNothing(t *testing.T) {
	t.Parallel()
	parent := shortDir(t)
	dir := filepath.Join(parent, "site")
	db, list := tar.Header{Name: "bcd.db"}, tar.Header{Name: "chunks.txt"}
	for name, entries := range map[string][]tar.Header{
		"parent":            {{Name: "../evil"}},
		"parent of keys":    {{Name: "keys/../../evil"}},
		"absolute":          {{Name: filepath.Join(parent, "evil")}},
		"backslash":         {{Name: `keys\..\..\evil`}},
		"keys itself":       {db, list, {Name: "keys"}},
		"dot key":           {db, list, {Name: "keys/.."}},
		"link":              {{Name: "keys/site.key", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		"hard link":         {{Name: "keys/site.key", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"device":            {{Name: "bcd.db", Typeflag: tar.TypeChar}},
		"something else":    {{Name: "cron.d"}},
		"twice":             {db, db},
		"nothing":           {},
		"no keys":           {db, list},
		"no list":           {db, {Name: "keys/site.key"}},
		"no database in it": {db, list, {Name: "keys/site.key"}},
	} {
		_, err := site.Restore(t.Context(), hostile(t, entries...), dir, passphrase)
		if app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
		if left := names(t, parent); len(left) > 0 {
			t.Fatalf("%s left %v", name, left)
		}
	}
}

func TestResetPassword(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	if _, err := site.ResetPassword(t.Context(), r.dir, "admin"); app.CodeOf(err) != app.Unavailable {
		t.Errorf("no site gave %v", err)
	}
	r.start("")
	if _, err := site.ResetPassword(t.Context(), r.dir, "nobody"); app.CodeOf(err) != app.NotFound {
		t.Errorf("a user who is not there gave %v", err)
	}
	pw, err := site.ResetPassword(t.Context(), r.dir, "admin")
	if err != nil {
		t.Fatal(err)
	}
	r.token = ""
	if r.last.http.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	if err := r.call(http.MethodPost, "/api/v1/session", api.LoginInput{Name: "admin", Password: "a long enough password"}, nil); app.CodeOf(err) != app.Unauthenticated {
		t.Errorf("the old password gave %v", err)
	}
	r.must(http.MethodPost, "/api/v1/session", api.LoginInput{Name: "admin", Password: pw}, nil)
}
