package site

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/listen"
	"github.com/better-compute/bcd/store"
)

// localName is the socket, in the data directory, through which root on the host asks a running site. Its mode is 0600:
// who may open it could read the database anyway.
const localName = "local.sock"

// local serves what needs no login because it needs root on the host.
type local struct {
	dataDir string
	db      *store.DB
	access  *access.Service
	takeUp  func(ctx context.Context, plugin string) (string, error)
	up      chan struct{} // closed by run once the socket is open
}

// localStall is how long a part of an answer may take to leave: a backup may go to a tape, but a caller that stands still
// must not hold it open for ever.
const localStall = 10 * time.Minute

type backupInput struct {
	Passphrase string `json:"passphrase"`
}

type resetInput struct {
	User string `json:"user"`
}

type resetOutput struct {
	Password string `json:"password"`
}

func (l *local) run(ctx context.Context) error {
	path := filepath.Join(l.dataDir, localName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old local socket: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("opening the local socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("protecting the local socket: %w", err), ln.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /backup", l.backup)
	mux.HandleFunc("POST /reset-password", l.reset)
	mux.HandleFunc("POST /plugins", l.plugins)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute} // root alone reaches it, and may be slow
	close(l.up)
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(listen.Moving(ln, localStall)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (l *local) backup(w http.ResponseWriter, r *http.Request) {
	var in backupInput
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&in); err != nil {
		fail(w, app.Invalid("passphrase", "is missing"))
		return
	}
	c := &counted{ResponseWriter: w}
	if err := backup(r.Context(), l.db, l.dataDir, in.Passphrase, c); err != nil {
		if c.n == 0 {
			fail(w, err)
			return
		}
		panic(http.ErrAbortHandler) // the caller sees a cut answer, never half a backup that looks whole
	}
}

type counted struct {
	http.ResponseWriter
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += int64(n)
	return n, err
}

func (l *local) reset(w http.ResponseWriter, r *http.Request) {
	var in resetInput
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&in); err != nil {
		fail(w, app.Invalid("user", "is missing"))
		return
	}
	pw, err := l.access.ResetPassword(r.Context(), in.User)
	if err != nil {
		fail(w, err)
		return
	}
	_ = json.NewEncoder(w).Encode(resetOutput{pw}) // the caller went away: it can ask again
}

func fail(w http.ResponseWriter, err error) {
	e, ok := app.AsError(err)
	if !ok {
		e = app.Errorf(app.Internal, "internal", "it failed inside the appliance: %v", err)
	}
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(e) // the caller went away: nothing to tell
}

// isDial reports whether nothing was there to be asked.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// ask calls the local socket of a running site; Unavailable when none runs on dataDir.
func ask(ctx context.Context, dataDir, path string, in any) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dataDir, localName))
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://local"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		if !isDial(err) {
			return nil, app.Errorf(app.Unavailable, "local-cut", "the running bcd gave no whole answer: %w", err).Do("look at its log, then try again")
		}
		return nil, app.Errorf(app.Unavailable, "not-running", "no bcd runs on %s: %w", dataDir, err).Do("start it, or run this as root or the account bcd on its host")
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		var e app.Error
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&e); err != nil {
			return nil, fmt.Errorf("asking the site: %s", resp.Status)
		}
		return nil, &e
	}
	return resp.Body, nil
}

// Backup asks the site that runs on dataDir for a backup and writes it to w.
func Backup(ctx context.Context, dataDir, passphrase string, w io.Writer) error {
	body, err := ask(ctx, dataDir, "/backup", backupInput{passphrase})
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return app.Errorf(app.Internal, "backup-cut", "the backup was cut off: %w", err).Do("look at the appliance's log, then try again")
	}
	return nil
}

// ResetPassword asks the site that runs on dataDir for a new password of a user.
func ResetPassword(ctx context.Context, dataDir, user string) (string, error) {
	body, err := ask(ctx, dataDir, "/reset-password", resetInput{user})
	if err != nil {
		return "", err
	}
	defer body.Close()
	var out resetOutput
	if err := json.NewDecoder(io.LimitReader(body, 4096)).Decode(&out); err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return out.Password, nil
}
