package site

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
)

// What a backup holds: the database as of one moment, every key file, and a list of the image chunks, which are large and
// can be imported again. It is a tar, encrypted by age under a passphrase, because it holds the keys.
const (
	databaseName = "bcd.db"
	keysDir      = "keys"
	chunksName   = "chunks.txt"
	backupPrefix = "backup-" // of the copy of the database that a backup makes on its way
	minPassword  = 12        // bytes of a backup's passphrase
	maxBackup    = 64 << 30
)

// backup writes a backup of a running site to w.
func backup(ctx context.Context, db *store.DB, dataDir, passphrase string, w io.Writer) error {
	if len(passphrase) < minPassword {
		return app.Invalid("passphrase", "is shorter than %d bytes", minPassword).Do("the backup holds every key of the site: choose a longer one")
	}
	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return fmt.Errorf("preparing the encryption: %w", err)
	}
	// What can be refused comes before the first byte that is written: after it the caller only sees a cut answer.
	tmp := filepath.Join(dataDir, backupPrefix+app.NewID("x")+".db")
	defer func() { _ = os.Remove(tmp) }() // what stays is removed at the next start
	if err := db.Backup(ctx, tmp); err != nil {
		return err
	}
	enc, err := age.Encrypt(w, to)
	if err != nil {
		return fmt.Errorf("encrypting the backup: %w", err)
	}
	tw := tar.NewWriter(enc)
	if err := addFile(tw, tmp, databaseName); err != nil {
		return err
	}
	if err := addTree(tw, filepath.Join(dataDir, keysDir), keysDir); err != nil {
		return err
	}
	list, err := chunkList(filepath.Join(dataDir, imagesDir))
	if err != nil {
		return err
	}
	if err := addBytes(tw, chunksName, []byte(list)); err != nil {
		return err
	}
	return errors.Join(tw.Close(), enc.Close())
}

// removeLeftovers removes the copies of the database that backups left behind that were killed. The caller holds the data
// directory, so none is under way.
func removeLeftovers(dataDir string) error {
	left, err := filepath.Glob(filepath.Join(dataDir, backupPrefix+"*"))
	for _, p := range left {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}

func addFile(tw *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("backing up %s: %w", name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("backing up %s: %w", name, err)
	}
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: st.Size(), ModTime: st.ModTime()}); err != nil {
		return fmt.Errorf("backing up %s: %w", name, err)
	}
	if _, err := io.Copy(tw, f); err != nil {
		return fmt.Errorf("backing up %s: %w", name, err)
	}
	return nil
}

func addTree(tw *tar.Writer, dir, name string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		return addFile(tw, p, filepath.ToSlash(filepath.Join(name, rel)))
	})
}

func addBytes(tw *tar.Writer, name string, b []byte) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(b)), ModTime: time.Now()}); err != nil {
		return fmt.Errorf("backing up %s: %w", name, err)
	}
	_, err := tw.Write(b)
	return err
}

// chunkList names each file of the chunk store with its size, a line each. Names hold digests.
func chunkList(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		lines = append(lines, fmt.Sprintf("%s %d", filepath.ToSlash(rel), st.Size()))
		return err
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", err
}

// Restore unpacks a backup into an empty data directory. Nothing is left there when it fails. It returns the chunk files
// that the images need and that are not there.
func Restore(ctx context.Context, r io.Reader, dataDir, passphrase string) (missing []string, err error) {
	for _, name := range []string{databaseName, keysDir} {
		if _, err := os.Lstat(filepath.Join(dataDir, name)); err == nil {
			return nil, app.Errorf(app.Conflict, "restore-exists", "%s holds a site already", dataDir).Do("stop bcd and move %s away first", dataDir)
		}
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	tmp, err := os.MkdirTemp(dataDir, "restore-*")
	if err != nil {
		return nil, fmt.Errorf("making a work directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // it holds nothing that the data directory does not
	if err := unpack(r, tmp, passphrase); err != nil {
		return nil, err
	}
	// The database comes last: what is cut off before holds no site.
	if err := os.Rename(filepath.Join(tmp, keysDir), filepath.Join(dataDir, keysDir)); err != nil {
		return nil, fmt.Errorf("restoring the keys: %w", err)
	}
	if err := store.Restore(ctx, filepath.Join(tmp, databaseName), filepath.Join(dataDir, databaseName)); err != nil {
		return nil, errors.Join(unusable(err), os.RemoveAll(filepath.Join(dataDir, keysDir)))
	}
	if err := giveTo(dataDir, databaseName, keysDir); err != nil {
		return nil, err
	}
	return missingChunks(tmp, dataDir)
}

// giveTo makes what was restored belong to whom its directory belongs to: root restores, the service's account reads.
func giveTo(dataDir string, names ...string) error {
	st, err := os.Stat(dataDir)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", dataDir, err)
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(dataDir, name), func(p string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(p, int(owner.Uid), int(owner.Gid)))
		})
		if err != nil {
			return fmt.Errorf("giving %s to the account of %s: %w", name, dataDir, err)
		}
	}
	return nil
}

func unpack(r io.Reader, dir, passphrase string) error {
	id, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return app.Invalid("passphrase", "is empty")
	}
	dec, err := age.Decrypt(r, id)
	if err != nil {
		return app.Errorf(app.InvalidInput, "cannot-decrypt", "the backup cannot be opened: the passphrase is wrong, or it is no backup of bcd").At("passphrase")
	}
	tr := tar.NewReader(io.LimitReader(dec, maxBackup))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return complete(dir)
		}
		if err != nil {
			return damaged(err)
		}
		if !ours(h) {
			return damaged(fmt.Errorf("it holds %.80q", h.Name))
		}
		if err := unpackFile(tr, filepath.Join(dir, h.Name)); err != nil {
			return err
		}
	}
}

// ours reports whether a backup holds such an entry: the database, the list of chunks, or a key.
func ours(h *tar.Header) bool {
	key, isKey := strings.CutPrefix(h.Name, keysDir+"/")
	known := h.Name == databaseName || h.Name == chunksName || isKey && key != "." && key != ".." && !strings.ContainsAny(key, "/\\")
	return known && h.Typeflag == tar.TypeReg
}

func complete(dir string) error {
	for _, n := range []string{databaseName, keysDir, chunksName} {
		if _, err := os.Stat(filepath.Join(dir, n)); err != nil {
			return damaged(fmt.Errorf("it holds no %s", n))
		}
	}
	return nil
}

func damaged(err error) error {
	return app.Errorf(app.InvalidInput, "backup-damaged", "the backup is damaged: %w", err).Do("use another backup")
}

// unusable words a database that is none for people who know the backup only, not the file it was unpacked to.
func unusable(err error) error {
	if e, ok := app.AsError(err); ok && (e.Reason == "store-not-a-database" || e.Reason == "store-damaged") {
		return damaged(errors.New("its database cannot be read"))
	}
	return err
}

func unpackFile(r io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return damaged(fmt.Errorf("it holds %s twice", filepath.Base(path)))
	}
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Sync(), f.Close())
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return app.Errorf(app.StorageFull, "storage-full", "the backup does not fit: %w", err).Do("free some space in the data directory")
	case err != nil:
		return damaged(err)
	}
	return nil
}

func missingChunks(tmp, dataDir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(tmp, chunksName))
	if err != nil {
		return nil, fmt.Errorf("reading the list of chunks: %w", err)
	}
	var missing []string
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		name, _, _ := strings.Cut(line, " ")
		if name == "" || !filepath.IsLocal(name) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dataDir, imagesDir, name)); err != nil {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
