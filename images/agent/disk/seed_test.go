package disk

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// versions are two builds of an image, the second with files that moved to both sides and a new one, and what a disk of
// 12 MiB holds after the first.
func versions(t *testing.T) (first, second, disk []byte) {
	const u = 100 * 4096
	first = testRaw(40, 20*u)
	second = bytes.Join([][]byte{first[:5*u], testRaw(41, u/2), first[5*u : 10*u], first[11*u : 14*u], first[18*u:], first[14*u : 18*u]}, nil)
	s, d := newSite(t, first), sda(12<<20)
	r := newRig(t, s, d)
	if _, err := r.Write(context.Background(), s.order(d), quiet); err != nil {
		t.Fatal(err)
	}
	return first, second, r.content(t, "sda")
}

// redeploy puts the second image on a disk with the given content.
func redeploy(t *testing.T, s *site, content []byte) (*rig, *agentv1.WriteResult, error) {
	t.Helper()
	d := sda(24 << 20)
	r := newRig(t, s, d)
	if err := os.WriteFile(filepath.Join(r.dir, "sda"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := r.Write(context.Background(), s.order(d), quiet)
	return r, out, err
}

// checkImage compares what the image covers; behind it lies what an earlier one left.
func checkImage(t *testing.T, r *rig, raw []byte) {
	t.Helper()
	if got := r.content(t, "sda"); !bytes.Equal(got[:len(raw)], raw) {
		t.Error("the disk differs from the image")
	}
}

// TestRedeploy: only what is new is fetched, though source and target are the same disk.
func TestRedeploy(t *testing.T) {
	first, second, content := versions(t)
	s := newSite(t, first, second)
	r, out, err := redeploy(t, s, content)
	if err != nil {
		t.Fatal(err)
	}
	checkImage(t, r, second)
	if all := s.index.StoredBytes(); out.BytesFetched > all/3 || out.BytesKept == 0 || out.BytesMoved == 0 {
		t.Errorf("%d bytes fetched of %d, %d kept, %d moved", out.BytesFetched, all, out.BytesKept, out.BytesMoved)
	}
	r, out, err = redeploy(t, newSite(t, second, first), r.content(t, "sda"))
	if err != nil {
		t.Fatal(err)
	}
	checkImage(t, r, first)
	if out.BytesMoved == 0 {
		t.Error("going back moved nothing")
	}
}

// TestSeedsAreNotTrusted: whatever became of the disk, and whatever the seed's index says, the image is right.
func TestSeedsAreNotTrusted(t *testing.T) {
	first, second, content := versions(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	spoiled := bytes.Clone(content)
	for range 60 {
		spoiled[rnd.IntN(len(spoiled))] ^= 1
	}
	for name, c := range map[string]struct {
		site *site
		disk []byte
		hook func(s *site)
	}{
		"changed here and there": {newSite(t, first, second), spoiled, nil},
		"another image":          {newSite(t, first, second), testRaw(42, 12<<20), nil},
		"wiped":                  {newSite(t, first, second), make([]byte, 12<<20), nil},
		"the seed is gone": {newSite(t, first, second), content, func(s *site) {
			s.hook = func(w http.ResponseWriter, r *http.Request) bool {
				if gone := r.URL.Path == s.seeds[0].IndexURL; gone {
					http.NotFound(w, r)
					return true
				}
				return false
			}
		}},
		"the seed is of another digest": {newSite(t, first, second), content, func(s *site) { s.seeds[0].IndexSHA256 = strings.Repeat("0", 64) }},
	} {
		if c.hook != nil {
			c.hook(c.site)
		}
		r, _, err := redeploy(t, c.site, c.disk)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkImage(t, r, second)
	}
}

// stopping is a disk that fails for good at one write.
type stopping struct {
	Device
	writes *atomic.Int64
	at     int64
}

func (s stopping) WriteAt(b []byte, off int64) (int, error) {
	if s.writes.Add(1) >= s.at {
		return 0, syscall.EIO
	}
	return s.Device.WriteAt(b, off)
}

// TestRedeployCutShort: the power goes at the nth write, for every n; the next attempt ends right.
func TestRedeployCutShort(t *testing.T) {
	first, second, content := versions(t)
	s := newSite(t, first, second)
	d := sda(24 << 20)
	for at := int64(1); ; at++ {
		r := newRig(t, s, d)
		if err := os.WriteFile(filepath.Join(r.dir, "sda"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		var writes atomic.Int64
		r.cfg.Open = func(p string) (Device, error) {
			dev, err := Open(p)
			return stopping{dev, &writes, at}, err
		}
		_, err := r.Write(context.Background(), s.order(d), quiet)
		if err == nil {
			if at < 5 {
				t.Errorf("only %d writes were made", at)
			}
			return
		}
		if reason(err) != "disk-io" || !errors.Is(err, syscall.EIO) {
			t.Fatalf("write %d: %v", at, err)
		}
		r.cfg.Open = Open
		if _, err := r.Write(context.Background(), s.order(d), quiet); err != nil {
			t.Fatalf("after write %d failed: %v", at, err)
		}
		checkImage(t, r, second)
	}
}

// TestWriteTakenUpAgain: what a write that was cut short left on the disk is not fetched again.
func TestWriteTakenUpAgain(t *testing.T) {
	s := newSite(t, testRaw(43, 9<<20))
	d := sda(24 << 20)
	r := newRig(t, s, d)
	r.cfg.Open = func(p string) (Device, error) {
		dev, err := Open(p)
		return &fault{Device: dev, write: s.index.Chunks[len(s.index.Chunks)*4/5].Offset}, err
	}
	r.cfg.Workers = 1
	if _, err := r.Write(context.Background(), s.order(d), quiet); reason(err) != "disk-io" {
		t.Fatal(err)
	}
	r.cfg.Open = Open
	out, err := r.Write(context.Background(), s.order(d), quiet)
	if err != nil {
		t.Fatal(err)
	}
	checkWritten(t, r.content(t, "sda"), s.raw, 512)
	if all := s.index.StoredBytes(); out.BytesFetched > all/2 || out.BytesKept == 0 {
		t.Errorf("%d bytes fetched of %d, %d kept", out.BytesFetched, all, out.BytesKept)
	}
}
