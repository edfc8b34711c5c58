package site

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/bootiso"
	"github.com/better-compute/bcd/store"
)

// What leaves of an image is noted at the first byte, at the start, and then every two seconds; a restart goes on from there,
// and a boot that is over is served no more.
func TestReadsOfAnImage(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	clock := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	var told []string
	signals := 0
	reads := func() *isoReads {
		return &isoReads{
			store: db, images: db, now: func() time.Time { return clock }, warn: t.Errorf, signal: func(string) { signals++ },
			record: func(x app.Record) { told = append(told, x.Message) },
			open: func(_ context.Context, rest string) (*os.File, error) {
				if rest != "img-1/image.iso" {
					t.Errorf("asked to open %q", rest)
				}
				return os.Open(os.DevNull)
			},
		}
	}
	if err := db.CreateImage(t.Context(), &app.Image{ID: "img-1", Name: "netinst", State: "ready", RawBytes: 600 << 20, Layout: app.Layout{Table: app.TableISO}}); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateBoot(t.Context(), &app.Boot{Key: "boot-1", MachineID: "m-1", ISO: "img-1"}); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateBoot(t.Context(), &app.Boot{Key: "boot-2", MachineID: "m-2"}); err != nil {
		t.Fatal(err)
	}
	const path = "boot-1/image.iso"
	r := reads()
	open := func(rest string, want error) {
		t.Helper()
		f, err := r.Open(t.Context(), rest)
		if err == nil {
			_ = f.Close()
		}
		if want == nil && err != nil || want != nil && !errors.Is(err, want) && app.CodeOf(err) != app.NotFound {
			t.Errorf("%s: %v, want %v", rest, err, want)
		}
	}
	noted := func(want int64, wantSignals int) {
		t.Helper()
		if b, err := db.Boot(t.Context(), "boot-1"); err != nil || b.Read != want || signals != wantSignals {
			t.Errorf("%d bytes are noted after %d signals, %v; want %d, %d", b.Read, signals, err, want, wantSignals)
		}
	}
	for _, bad := range []string{"boot-1", "boot-1/index", "boot-9/image.iso", "boot-2/image.iso", "/image.iso"} {
		open(bad, fs.ErrNotExist)
	}
	r.Sent(path, 1) // of a boot that nobody opened
	noted(0, 0)
	open(path, nil)
	r.Sent(path, 2048)
	noted(2048, 1)
	for range 10 {
		r.Sent(path, 2048)
	}
	noted(2048, 1)
	r.Sent(path, bootiso.Started)
	noted(11*2048+bootiso.Started, 2)
	r.Sent(path, 2048)
	noted(11*2048+bootiso.Started, 2)
	clock = clock.Add(isoNoted)
	r.Sent(path, 4<<20)
	sum := int64(12*2048 + bootiso.Started + 4<<20)
	noted(sum, 3)
	r = reads() // the process was started anew
	open(path, nil)
	r.Sent(path, 2048)
	noted(sum+2048, 4)
	if diff := cmp.Diff([]string{"Its loader began to read the ISO netinst.", "Its loader has read 4.1 MiB of the ISO netinst."}, told); diff != "" {
		t.Errorf("the timeline: want - got +\n%s", diff)
	}
	if err := db.RevokeBoots(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(isoKnown)
	open(path, fs.ErrNotExist)
}
