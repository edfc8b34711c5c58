package problem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/problem"
)

func TestEveryCodeHasItsStatus(t *testing.T) {
	for code, want := range map[app.Code]int{
		app.InvalidInput: 422, app.InvalidConfig: 422, app.Unsupported: 422, app.NotFound: 404, app.Conflict: 409, app.Unauthenticated: 401, app.Forbidden: 403,
		app.TooLarge: 413, app.RateLimited: 429, app.Unavailable: 503, app.StorageFull: 507, app.Timeout: 504, app.Interrupted: 409, app.Internal: 500, "NEW_CODE": 500,
	} {
		if got := problem.Status(app.Errorf(code, "x", "y")); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	for reason, want := range map[string]int{problem.ReasonMalformed: 400, problem.ReasonMediaType: 415, problem.ReasonLength: 411, problem.ReasonMethod: 405} {
		if got := problem.Status(app.Errorf(app.InvalidInput, reason, "y")); got != want {
			t.Errorf("%s: %d, want %d", reason, got, want)
		}
	}
}

func TestOnlyWhatWasWrittenForPeopleIsShown(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		logged bool
	}{
		{"ours", app.Missing("machine", "m-1"), 404, false},
		{"ours, wrapped", fmt.Errorf("loading: %w", app.Missing("machine", "m-1")), 404, false},
		{"ours, internal", app.Errorf(app.Internal, "x", "secret detail"), 500, true},
		{"foreign", errors.New("secret detail"), 500, true},
		{"too large", fmt.Errorf("reading: %w", &http.MaxBytesError{Limit: 5}), 413, false},
		{"disk full", &fs.PathError{Op: "write", Path: "/secret detail", Err: syscall.ENOSPC}, 507, true},
		{"no permission", &fs.PathError{Op: "open", Path: "/secret detail", Err: fs.ErrPermission}, 500, true},
		{"gone", context.Canceled, 503, false},
		{"late", context.DeadlineExceeded, 504, false},
	} {
		var log bytes.Buffer
		r := httptest.NewRequest("GET", "/", nil)
		ctx, id := problem.WithID(r.Context())
		w := httptest.NewRecorder()
		problem.Write(w, r.WithContext(ctx), slog.New(slog.NewTextHandler(&log, nil)), c.err)
		if w.Code != c.status || strings.Contains(w.Body.String(), "secret detail") || !strings.Contains(w.Body.String(), id) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if (strings.Count(log.String(), id) == 1) != c.logged {
			t.Errorf("%s: log %q", c.name, log.String())
		}
	}
}

// Whatever comes, exactly one object of known fields is taken or the input is refused as malformed.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":"x"}`, `{"a":"x"}{}`, `null`, `[]`, `{"b":1}`, `{"a":7}`, ``, ` {"a":"x"} `, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v struct {
			A string `json:"a"`
		}
		err := problem.Decode(raw, &v)
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(raw))
			var m map[string]any
			if d.Decode(&m) != nil || m == nil {
				t.Fatalf("accepted %q", raw)
			}
			if _, more := d.Token(); !errors.Is(more, io.EOF) {
				t.Fatalf("accepted two documents %q", raw)
			}
			return
		}
		if e, ok := app.AsError(err); !ok || problem.Status(e) != 400 {
			t.Fatalf("%q: %v", raw, err)
		}
	})
}
