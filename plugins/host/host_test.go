package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// A pinned file runs, confined, with four names in its environment, from the file that was hashed.
func TestPinnedPluginRuns(t *testing.T) {
	b := newBench(t)
	p := b.pinned("acme-bmc", "good=acme@1.2.3")
	b.start()
	s := b.status("acme-bmc")
	if s.State != Running || !s.Serving || s.SHA256 != p.SHA256 || s.PID == 0 || s.Version != "7" || s.Restarts != 0 || s.Memory < 1<<20 || s.Bundled {
		t.Fatalf("it stands at %+v\n%s", s, b.logs)
	}
	if len(s.Drivers) != 1 || s.Drivers[0].ID != "acme" || b.reg.keys() != "acme@1.2.3" {
		t.Errorf("drivers %+v, registered %s", s.Drivers, b.reg.keys())
	}
	if os.Geteuid() == 0 && (!s.Sandbox.Confined || s.Sandbox.UID == 0) {
		t.Errorf("confinement %+v", s.Sandbox)
	}
	out, err := b.call(t.Context(), "acme@1.2.3", "ping", "")
	if err != nil || out != strconv.Itoa(s.PID) {
		t.Errorf("ping gave %s, %v; the process is %d", out, err, s.PID)
	}
	out, err = b.call(t.Context(), "acme@1.2.3", "environ", "")
	var env []string
	if err != nil || json.Unmarshal([]byte(out), &env) != nil {
		t.Fatal(out, err)
	}
	var names []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{bcx.EnvClientCert, bcx.EnvCookie, bcx.EnvSocketDir, "PATH"}; !slices.Equal(names, want) {
		t.Errorf("the environment holds %v, want %v", names, want)
	}
	sock, err := filepath.Glob(filepath.Join(b.run, "*", bcx.SocketName))
	if err != nil || len(sock) != 1 {
		t.Fatal(sock, err)
	}
	if st, err := os.Stat(filepath.Dir(sock[0])); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", st, err)
	}
}

func TestUnpinnedAndChangedFilesAreRefused(t *testing.T) {
	b := newBench(t)
	b.pinned("acme", "good=acme@1.0.0")
	path := filepath.Join(b.dir, "acme")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(" "); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "stranger"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.start()
	s := b.status("acme")
	if s.State != Refused || !strings.Contains(s.Reason, "is pinned") || len(b.List()) != 1 || b.reg.keys() != "" {
		t.Errorf("%+v, registered %q", b.List(), b.reg.keys())
	}
	// It waits for people, not for time; a new pin is taken up by a reload.
	b.clock.advance(time.Hour)
	if _, err := Repin(t.Context(), b.dir, "acme"); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	b.awaitState("acme", Running)
}

// kill -9 in mid-call: the call fails as retryable unreachable when the process is gone, and waits for none of the host's
// times, which stand still here; the one real time on the way, drainLimit, is far below the second that is promised. What comes
// meanwhile is refused at once as unavailable, the next call works after the back-off, and another plugin notices nothing.
func TestKilledInMidCall(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0", "b:good=beta@1.0.0").start()
	other := make(chan error, 1)
	octx, cancel := context.WithCancel(t.Context())
	go func() { _, err := b.call(octx, "beta@1.0.0", "hang", ""); other <- err }()
	b.await("b", func(s Status) bool { return s.Calls == 1 })

	failed := make(chan error, 1)
	go func() { _, err := b.call(t.Context(), "alpha@1.0.0", "hang", ""); failed <- err }()
	s := b.await("a", func(s Status) bool { return s.Calls == 1 })
	began := b.clock.Now()
	kill(t, s.PID)
	at := time.Now()
	select {
	case err := <-failed:
		t.Logf("the call failed after %s", time.Since(at))
		wantCode(t, err, driver.CodeUnreachable, true)
		if now := b.clock.Now(); !now.Equal(began) || drainLimit > time.Second/2 {
			t.Errorf("the call waited: it is %s later, and a broken connection is given %s", now.Sub(began), drainLimit)
		}
	case <-time.After(limit):
		t.Fatal("the call does not end")
	}
	s = b.awaitState("a", BackOff)
	if !strings.Contains(s.Reason, "killed") || s.Next.Sub(b.clock.Now()) != time.Second || s.PID != 0 {
		t.Errorf("it stands at %+v", s)
	}
	_, err := b.call(t.Context(), "alpha@1.0.0", "ping", "")
	wantCode(t, err, driver.CodeUnavailable, true)
	if b.reg.reason("alpha@1.0.0") == "" || b.reg.keys() != "alpha@1.0.0 beta@1.0.0" {
		t.Errorf("registered %s, down %q", b.reg.keys(), b.reg.reason("alpha@1.0.0"))
	}

	b.clock.asleep(t, time.Second)
	b.clock.advance(time.Second)
	s = b.awaitState("a", Running)
	if _, err := b.call(t.Context(), "alpha@1.0.0", "ping", ""); err != nil || s.Restarts != 1 || s.LastErr == "" {
		t.Errorf("%+v, %v", s, err)
	}
	select {
	case err := <-other:
		t.Errorf("the other plugin's call ended: %v", err)
	default:
	}
	cancel()
	wantCode(t, <-other, driver.CodeCancelled, false)
}

// The back-off doubles from a second to a minute and begins anew after a run of a minute. The first start is retried too.
func TestBackOff(t *testing.T) {
	b := newBench(t, "a:crash").start()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		want *= time.Second
		s := b.awaitState("a", BackOff)
		b.clock.asleep(t, want)
		if got := s.Next.Sub(b.clock.Now()); got != want || s.Restarts != i {
			t.Fatalf("after %d starts it waits %s, want %s", s.Restarts+1, got, want)
		}
		b.clock.advance(want)
		b.await("a", func(s Status) bool { return s.Restarts > i && s.State == BackOff })
	}
	lines, err := b.Logs("a", 100)
	if err != nil || len(lines) != 9 || lines[0].Message != "cannot find my configuration" {
		t.Errorf("%v, %v", lines, err)
	}
}

func TestSteadyRunBringsTheBackOffToItsBeginning(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0").start()
	for i, c := range []struct{ ran, want time.Duration }{{0, time.Second}, {59 * time.Second, 2 * time.Second}, {time.Minute, time.Second}} {
		b.await("a", func(s Status) bool { return s.State == Running && s.Restarts == i })
		b.clock.asleep(t, healthEvery)
		b.clock.advance(c.ran)
		kill(t, b.status("a").PID)
		s := b.awaitState("a", BackOff)
		if got := s.Next.Sub(b.clock.Now()); got != c.want {
			t.Errorf("after a run of %s it waits %s, want %s", c.ran, got, c.want)
		}
		b.clock.asleep(t, c.want)
		b.clock.advance(c.want)
	}
	b.awaitState("a", Running)
}

// The pin is changed under a running host: the plugin goes on, but is not started again.
func TestFileChangedUnderARunningHost(t *testing.T) {
	b := newBench(t)
	b.pinned("acme", "good=acme@1.0.0")
	b.start()
	good := filepath.Join(b.dir, "good")
	if err := os.Rename(filepath.Join(b.dir, "acme"), good); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "acme"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := b.status("acme")
	if out, err := b.call(t.Context(), "acme@1.0.0", "ping", ""); err != nil || out != strconv.Itoa(s.PID) {
		t.Errorf("the running plugin: %s, %v", out, err)
	}
	kill(t, s.PID)
	b.awaitState("acme", BackOff)
	b.clock.asleep(t, time.Second)
	b.clock.advance(time.Second)
	s = b.awaitState("acme", Refused)
	if !strings.Contains(s.Reason, "is pinned") || !strings.Contains(s.WayOut, "bcd plugin pin acme") || s.PID != 0 || b.reg.reason("acme@1.0.0") != s.Reason {
		t.Errorf("it stands at %+v, down %q", s, b.reg.reason("acme@1.0.0"))
	}
	if m, _ := b.events.Load("plugin.refused"); m == nil {
		t.Error("nothing was recorded of the refusal")
	}
	_, err := b.call(t.Context(), "acme@1.0.0", "ping", "")
	wantCode(t, err, driver.CodeUnavailable, true)
	if err := os.Rename(good, filepath.Join(b.dir, "acme")); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart("acme"); err != nil {
		t.Fatal(err)
	}
	b.awaitState("acme", Running)
}

// What a plugin served last is known, as down, before the plugin has started.
func TestDriversAreRememberedWhileTheyAreLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugins.json")
	b := newBench(t, "a:good=alpha@1.0.0")
	b.cfg.Memory = path
	var err error
	if b.Host, err = New(b.cfg); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.stop()

	late := newBench(t, "a:silent")
	late.cfg.Memory = path
	if late.Host, err = New(late.cfg); err != nil {
		t.Fatal(err)
	}
	late.begin()
	late.await("a", func(s Status) bool { return s.PID != 0 })
	if late.reg.keys() != "alpha@1.0.0" || late.reg.reason("alpha@1.0.0") == "" {
		t.Errorf("registered %s, down for %q", late.reg.keys(), late.reg.reason("alpha@1.0.0"))
	}
	_, err = late.call(t.Context(), "alpha@1.0.0", "ping", "")
	wantCode(t, err, driver.CodeUnavailable, true)
	late.stop()

	if err := os.WriteFile(path, []byte("{nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := newBench(t, "a:good=alpha@1.0.0")
	again.cfg.Memory = path
	if again.Host, err = New(again.cfg); err != nil {
		t.Fatal(err)
	}
	again.start()
	if again.reg.keys() != "alpha@1.0.0" || again.reg.reason("alpha@1.0.0") != "" {
		t.Errorf("registered %s, down for %q", again.reg.keys(), again.reg.reason("alpha@1.0.0"))
	}
}

// Reload starts what is new, ends what is gone, starts anew what changed and leaves the rest alone.
func TestReload(t *testing.T) {
	b := newBench(t, "bcx-ipmi:good=ipmi@1.0.0")
	b.pinned("keep", "good=keep@1.0.0")
	b.pinned("change", "good=change@1.0.0")
	b.pinned("gone", "good=gone@1.0.0")
	b.start()
	if b.reg.keys() != "change@1.0.0 gone@1.0.0 ipmi@1.0.0 keep@1.0.0" {
		t.Fatal(b.reg.keys(), b.logs)
	}
	kept := b.status("keep").PID
	b.pinned("change", "good=change@2.0.0")
	b.pinned("new", "good=new@1.0.0")
	b.pinned("bcx-ipmi", "good=ipmi@2.0.0") // replaces the bundled one
	if err := Remove(b.dir, "gone"); err != nil {
		t.Fatal(err)
	}
	if b.reg.keys() != "change@1.0.0 gone@1.0.0 ipmi@1.0.0 keep@1.0.0" {
		t.Error("pins were taken up before anybody asked")
	}
	if i := b.Issues(); len(i) != 1 || !strings.Contains(i[0].Message, "not in force") {
		t.Errorf("issues %v", i)
	}
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keep", "change", "new", "bcx-ipmi"} {
		b.awaitState(name, Running)
	}
	if i := b.Issues(); len(i) != 0 {
		t.Errorf("issues %v", i)
	}
	b.await("new", func(Status) bool { return b.reg.keys() == "change@2.0.0 ipmi@2.0.0 keep@1.0.0 new@1.0.0" })
	if s := b.status("keep"); s.PID != kept || s.Restarts != 0 {
		t.Errorf("what did not change was started again: %+v", s)
	}
	if s := b.status("bcx-ipmi"); s.Bundled {
		t.Errorf("the bundled plugin still runs: %+v", s)
	}
	// Pins that cannot be read change nothing.
	if err := os.Chmod(b.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(); err == nil || len(b.Issues()) != 1 || b.status("keep").PID != kept {
		t.Errorf("%v, %v", err, b.Issues())
	}
}

// A call in flight has the drain's time to end; what comes meanwhile is refused.
func TestRestartDrains(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0")
	b.cfg.Drain = limit
	b.start()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := b.call(ctx, "alpha@1.0.0", "hang", ""); ended <- err }()
	first := b.await("a", func(s Status) bool { return s.Calls == 1 })
	if err := b.Restart("a"); err != nil {
		t.Fatal(err)
	}
	b.awaitState("a", Stopping)
	_, err := b.call(t.Context(), "alpha@1.0.0", "ping", "")
	wantCode(t, err, driver.CodeUnavailable, true)
	select {
	case err := <-ended:
		t.Errorf("the call was cut: %v", err)
	default:
	}
	cancel()
	wantCode(t, <-ended, driver.CodeCancelled, false)
	s := b.await("a", func(s Status) bool { return s.State == Running && s.PID != first.PID })
	if s.Restarts != 1 || s.LastErr != "" {
		t.Errorf("it stands at %+v", s)
	}
	if err := b.Restart("nobody"); app.CodeOf(err) != app.NotFound {
		t.Errorf("restarting nobody gave %v", err)
	}
}

// A plugin that does not want to stop is killed after the grace, with what it started.
func TestStopKillsTheStubbornAndTheirChildren(t *testing.T) {
	b := newBench(t, "a:stubborn=alpha@1.0.0", "b:child=beta@1.0.0")
	b.cfg.Grace = 100 * time.Millisecond
	b.start()
	before := descendants(t)
	if len(before) < 3 {
		t.Fatalf("only %v run", before)
	}
	b.stop()
	gone(t, before)
	if dirs, err := os.ReadDir(b.run); err != nil || len(dirs) != 0 {
		t.Errorf("left behind: %v, %v", dirs, err)
	}
	if err := b.Reload(); app.CodeOf(err) != app.Unavailable {
		t.Errorf("reloading a stopped host gave %v", err)
	}
}

// What a plugin serves after a restart is what counts: drivers it has dropped go, new ones come.
func TestChangedDriversAreAdvertisedAnew(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0").start()
	p, err := b.find("a")
	if err != nil {
		t.Fatal(err)
	}
	m := func(id, version string, kinds ...string) bcx.Manifest {
		return bcx.Manifest{ID: id, Version: version, RunsOn: "site", Kinds: kinds}
	}
	if err := p.merge(bcx.Description{Drivers: []bcx.Manifest{m("alpha", "1.0.0", "acme-test", "power"), m("gamma", "1.0.0", "power"), m("redfish", "1.0.0", "power")}}); err != nil {
		t.Fatal(err)
	}
	if b.reg.keys() != "alpha@1.0.0 gamma@1.0.0" || !b.reg.get("alpha@1.0.0").Has("power") || len(b.status("a").Skipped) != 1 {
		t.Errorf("registered %s, skipped %v", b.reg.keys(), b.status("a").Skipped)
	}
	if err := p.merge(bcx.Description{Drivers: []bcx.Manifest{m("gamma", "1.1.0", "power")}}); err != nil || b.reg.keys() != "gamma@1.1.0" {
		t.Errorf("registered %s, %v", b.reg.keys(), err)
	}
}

// Calls, also at the same time, reach the plugin and come back, each to its caller.
func TestManyCallsAtOnce(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0").start()
	errs := make(chan error)
	for i := range 64 {
		go func() {
			want := fmt.Sprintf("[%d]", i)
			out, err := b.call(t.Context(), "alpha@1.0.0", "echo", want)
			if err == nil && out != want {
				err = fmt.Errorf("%s came back as %s", want, out)
			}
			errs <- err
		}()
	}
	for range 64 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
