package sandbox

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestOrder has the shim read what bcd wrote, whatever a plugin's arguments look like.
func TestOrder(t *testing.T) {
	for _, o := range []order{
		{argv: []string{"alpha"}},
		{gate: true, argv: []string{"alpha", "--", "-gate", "", "-read=x"}},
		{confine: true, landlock: true, files: files{socketDir: "/run/x y", readPaths: []string{"/opt/a=b", "/opt/c"}, shared: true}, argv: []string{"alpha", "-h"}},
	} {
		if got, err := parseOrder(o.args()[1:]); err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("%+v: %+v %v", o, got, err)
		}
	}
	for _, args := range []string{"", "exec", "exec --", "exec -landlock -dir=/x -- a", "exec -confine -landlock -- a", "exec -what -- a", "guard", "guard x", "sh -c true"} {
		if code := RunShim(strings.Fields(args)); code != 1 {
			t.Errorf("%q ended with %d", args, code)
		}
	}
}

func FuzzOrder(f *testing.F) {
	f.Add("-gate\n--\nalpha")
	f.Add("-confine\n-landlock\n-dir=/x\n-read=/y\n--\nalpha\n-b")
	f.Fuzz(func(t *testing.T, lines string) {
		o, err := parseOrder(strings.Split(lines, "\n"))
		if err == nil && (len(o.argv) == 0 || o.landlock && !o.confine) {
			t.Errorf("%q gave %+v", lines, o)
		}
	})
}

// TestWillNotStart refuses what cannot work before anything runs, and leaves the directory as it was.
func TestWillNotStart(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true})
	for name, tt := range map[string]struct {
		change func(p *Plugin)
		err    string
	}{
		"a binary for root alone":   {func(p *Plugin) { p.Exe = program(t, "alpha", private(t)).Exe }, "make it 0755"},
		"no way to the directory":   {func(p *Plugin) { p.SocketDir = t.TempDir() }, "give that directory mode 0711"},
		"no directory":              {func(p *Plugin) { p.SocketDir = "/nowhere" }, "no such file"},
		"a file for a directory":    {func(p *Plugin) { p.SocketDir = "/etc/hostname" }, "not a directory"},
		"a link for a directory":    {func(p *Plugin) { p.SocketDir = link(t) }, "not a directory"},
		"a name that is not listed": {func(p *Plugin) { p.Names = []string{"beta"} }, "needs a name"},
		"no binary":                 {func(p *Plugin) { p.Exe = nil }, "needs a name"},
		"a relative directory":      {func(p *Plugin) { p.SocketDir = "run" }, "needs a name"},
	} {
		p := plugin(t, "alpha", "wait")
		tt.change(&p)
		if r, err := s.Prepare(t.Context(), p); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v", name, err)
			_ = r.Close()
		}
	}
	if s.warden.guard != nil || s.forker.users != 0 {
		t.Error("guard or thread are left")
	}
}

func private(t *testing.T) string {
	p := script(t, "#!/bin/true")
	if err := os.Chmod(p, 0o750); err != nil {
		t.Fatal(err)
	}
	return p
}

func link(t *testing.T) string {
	p := socketDir(t) + "/link"
	if err := os.Symlink("/etc", p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLeavesNothing starts and kills a plugin many times: no descriptor, process or claim is left.
func TestLeavesNothing(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	cycle := func() {
		p := plugin(t, "alpha", "wait")
		r, err := s.Prepare(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(); err == nil {
			t.Error("it started twice")
		}
		if err := r.Kill(); err != nil {
			t.Error(err)
		}
		_ = r.Cmd.Wait()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Close(), r.Kill()); err != nil {
			t.Errorf("closing twice: %v", err)
		}
		p.Exe.Close()
		if pids, err := living(procRoot, charge{Own: true, UID: r.Facts.UID}); err != nil || len(pids) != 0 {
			t.Errorf("processes %v are left: %v", pids, err)
		}
		if i, err := os.Stat(p.SocketDir); err != nil || i.Mode().Perm() != 0o700 || i.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("the socket directory was not handed back: %v %v", i, err)
		}
	}
	cycle()
	before := descriptors(t)
	for range 10 {
		cycle()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

// TestAtOnce starts and kills plugins side by side.
func TestAtOnce(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	names := []string{"a", "b", "c", "d", "e", "f"}
	var wg sync.WaitGroup
	seen := make(chan int, len(names))
	for _, name := range names {
		p := plugin(t, name, "wait")
		p.Names = names
		wg.Go(func() {
			r, err := s.Prepare(t.Context(), p)
			if err != nil {
				t.Error(err)
				return
			}
			seen <- r.Facts.UID
			if err := r.Start(); err != nil {
				t.Error(err)
			}
			if err := r.Kill(); err != nil {
				t.Error(err)
			}
			_ = r.Cmd.Wait()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(seen)
	given := map[int]bool{}
	for uid := range seen {
		given[uid] = true
	}
	if len(given) != len(names) {
		t.Errorf("%d plugins had %d uids", len(names), len(given))
	}
}

// TestSquatter has a plugin hold the names of others' uids: they start all the same.
func TestSquatter(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true})
	given, err := uids([]string{"alpha", "beta"}, accountHas)
	if err != nil {
		t.Fatal(err)
	}
	squatter := start(t, s, plugin(t, "alpha", "squat", claimAddr(given["beta"]).Name))
	next[string](t, squatter)
	if l := start(t, s, plugin(t, "beta", "wait")); l.Facts.UID != given["beta"] {
		t.Errorf("it has uid %d, not %d", l.Facts.UID, given["beta"])
	}
}

// BenchmarkStart is a program's whole life, with what confines it and without.
func BenchmarkStart(b *testing.B) {
	needRoot(b)
	for name, cfg := range map[string]Config{"uid": {}, "uid+seccomp": {Enabled: true}, "uid+seccomp+landlock": {Enabled: true, Landlock: true}} {
		b.Run(name, func(b *testing.B) {
			s := open(b, cfg)
			keep := start(b, s, plugin(b, "beta", "wait")) // keeps thread and guard, as a site's other plugins do
			next[string](b, keep)
			p := program(b, "alpha", "/bin/true")
			for b.Loop() {
				r, err := s.Prepare(b.Context(), p)
				if err != nil {
					b.Fatal(err)
				}
				if err := r.Start(); err != nil {
					b.Fatal(err)
				}
				if err := r.Cmd.Wait(); err != nil {
					b.Fatal(err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
