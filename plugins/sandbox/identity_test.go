package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInside looks at the plugin from inside.
func TestInside(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	p := plugin(t, "alpha", "self", "one", "two")
	p.Env = []string{"PATH=/usr/bin:/bin", "BCX_MAGIC_COOKIE=cookie", "BCX_SOCKET_DIR=" + p.SocketDir, "BCX_CLIENT_CERT=cert"}
	l := start(t, s, p)
	f, uid := next[selfFacts](t, l), l.Facts.UID
	if uid < firstUID || uid > lastUID || !slices.Equal(f.UIDs, []int{uid, uid, uid}) || !slices.Equal(f.GIDs, []int{uid, uid, uid}) || len(f.Groups) != 0 {
		t.Errorf("uids %v, gids %v, groups %v; uid %d was given", f.UIDs, f.GIDs, f.Groups, uid)
	}
	if lack := s.State(); landlockVersion() > 0 && len(lack) != 0 || len(l.Facts.Missing) != len(lack) {
		t.Errorf("state %q, facts %q", lack, l.Facts.Missing)
	}
	if !slices.Equal(f.Env, p.Env) {
		t.Errorf("the environment is %q", f.Env)
	}
	if want := []string{"alpha", probeArg, "self", "one", "two"}; !slices.Equal(f.Args, want) {
		t.Errorf("the arguments are %q", f.Args)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if f.Status[set] != "0000000000000000" {
			t.Errorf("%s is %s", set, f.Status[set])
		}
	}
	if f.Status["NoNewPrivs"] != "1" || f.Status["Seccomp"] != "2" || f.Death != 9 || f.Dir != "/" {
		t.Errorf("no_new_privs %s, seccomp %s, death signal %d, directory %s", f.Status["NoNewPrivs"], f.Status["Seccomp"], f.Death, f.Dir)
	}
	if f.PPid != os.Getpid() || f.Group == unix.Getpgrp() {
		t.Errorf("parent %d, process group %d", f.PPid, f.Group)
	}
}

// TestInheritsNothing lists the descriptors of a plugin that opens none itself.
func TestInheritsNothing(t *testing.T) {
	needRoot(t)
	f, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil { // what another package forgot to mark
		t.Fatal(err)
	}
	out, _ := output(t, open(t, Config{Enabled: true}), program(t, "alpha", script(t, "#!/bin/sh\nls /proc/$$/fd")))
	// 10 is the script, which the shell moves out of the way; 3 is where it came from.
	if got := strings.Fields(out); !slices.Equal(got, []string{"0", "1", "10", "2", "3"}) {
		t.Errorf("descriptors %v", got)
	}
}

// TestBinaryIsTheVerifiedOne replaces the file at the path between the hash and the start.
func TestBinaryIsTheVerifiedOne(t *testing.T) {
	needRoot(t)
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := script(t, string(b))
	p := program(t, "alpha", path, probeArg, "wait")
	if err := os.Rename(script(t, "#!/bin/false"), path); err != nil {
		t.Fatal(err)
	}
	want, err := p.Exe.Stat()
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, open(t, Config{Enabled: true, Landlock: true}), p)
	next[string](t, l)
	got, err := os.Stat(fmt.Sprintf("/proc/%d/exe", l.Cmd.Process.Pid))
	if err != nil || !os.SameFile(got, want) {
		t.Errorf("another file runs: %v", err)
	}
}

// TestScripts runs plugins that interpreters read from descriptor 3.
func TestScripts(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct{ name, interpreter, text string }{
		{"shell", "sh", "#!/bin/sh\necho \"$# $1 by $0\""},
		{"node", "node", "#!/usr/bin/env -S node --preserve-symlinks-main\nconst a = process.argv; console.log(a.length - 2, a[2], 'by', a[1])"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			needProgram(t, tt.interpreter)
			s := open(t, Config{Enabled: true, Landlock: true})
			out, state := output(t, s, program(t, "alpha", script(t, tt.text), "word"))
			if out != "1 word by /proc/self/fd/3\n" {
				t.Errorf("it printed %q and ended with %s", out, state)
			}
		})
	}
}

// TestSwitchedOff leaves uid and group as they are, and nothing else.
func TestSwitchedOff(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Landlock: true})
	l := start(t, s, plugin(t, "alpha", "self"))
	f := next[selfFacts](t, l)
	if f.UIDs[0] != l.Facts.UID || f.UIDs[0] < firstUID || len(f.Groups) != 0 || f.Death != 9 || f.Status["CapEff"] != "0000000000000000" {
		t.Errorf("%+v", f)
	}
	if f.Status["NoNewPrivs"] != "0" || f.Status["Seccomp"] != "0" || l.Facts.Confined || l.Facts.Landlock != 0 || len(s.State()) == 0 {
		t.Errorf("it is confined: %+v %v", l.Facts, f.Status)
	}
}

// TestPrivilegedIsLogged has the log name each start of a privileged plugin, and of no other.
func TestPrivilegedIsLogged(t *testing.T) {
	needRoot(t)
	var said bytes.Buffer
	s, err := New(Config{Enabled: true, Privileged: []string{"beta"}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	const line = "privileged plugin starts"
	output(t, s, plugin(t, "alpha", "self"))
	if strings.Contains(said.String(), line) {
		t.Errorf("a confined plugin is logged: %s", &said)
	}
	for n := range 2 {
		output(t, s, plugin(t, "beta", "self"))
		if got := said.String(); strings.Count(got, line) != n+1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "plugin=beta") {
			t.Errorf("after start %d the log says %s", n+1, got)
		}
	}
}

// TestPrivileged runs as root without shim and filter; the others stay confined.
func TestPrivileged(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true, Landlock: true, Privileged: []string{"beta"}})
	l := start(t, s, plugin(t, "beta", "self"))
	f := next[selfFacts](t, l)
	if f.UIDs[0] != 0 || f.Status["NoNewPrivs"] != "0" || f.Status["Seccomp"] != "0" || !l.Facts.Privileged || l.Facts.Confined || f.Death != 9 {
		t.Errorf("%+v %+v", f, l.Facts)
	}
	if f := result[selfFacts](t, s, plugin(t, "alpha", "self")); f.UIDs[0] == 0 || f.Status["Seccomp"] != "2" {
		t.Errorf("the other is privileged too: %+v", f)
	}
}

// TestUser runs every plugin as one account and its primary group.
func TestUser(t *testing.T) {
	needRoot(t)
	u, err := user.Lookup("games")
	if err != nil {
		t.Skip("left out: there is no account games here")
	}
	s := open(t, Config{Enabled: true, User: "games"})
	f := result[selfFacts](t, s, plugin(t, "alpha", "self"))
	if strconv.Itoa(f.UIDs[0]) != u.Uid || strconv.Itoa(f.GIDs[0]) != u.Gid || len(f.Groups) != 0 {
		t.Errorf("it ran as %v, %v, %v", f.UIDs, f.GIDs, f.Groups)
	}
	for _, name := range []string{"root", "0", "00"} {
		if _, err := New(Config{Enabled: true, User: name}); !errors.Is(err, errRoot) {
			t.Errorf("user %q: %v", name, err)
		}
	}
	if _, err := open(t, Config{Enabled: true, User: "nobody-has-this"}).Prepare(t.Context(), plugin(t, "alpha", "self")); err == nil {
		t.Error("an account that does not exist was taken")
	}
}

// TestOthersAreHidden looks from one plugin into another.
func TestOthersAreHidden(t *testing.T) {
	needRoot(t)
	for name, cfg := range map[string]Config{"confined": {Enabled: true}, "with Landlock": {Enabled: true, Landlock: true}, "by the uid alone": {}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			other := start(t, s, plugin(t, "beta", "secret"))
			address := next[uint64](t, other)
			got := result[map[string]string](t, s, plugin(t, "alpha", "peek", strconv.Itoa(other.Cmd.Process.Pid), strconv.FormatUint(address, 10)))
			for what, errno := range got {
				if errno != "EACCES" && errno != "EPERM" {
					t.Errorf("%s of another plugin: %q", what, errno)
				}
			}
			bcd := result[map[string]string](t, s, plugin(t, "alpha", "peek", strconv.Itoa(os.Getpid()), "4096"))
			for what, errno := range bcd {
				if errno != "EACCES" && errno != "EPERM" {
					t.Errorf("%s of bcd: %q", what, errno)
				}
			}
			own := result[map[string]string](t, s, plugin(t, "alpha", "peek", "self", "0"))
			if own["environ"] != "" {
				t.Errorf("the probe sees nothing anywhere: %v", own)
			}
		})
	}
}

// TestUIDs gives every name the same uid whatever the order, and moves past accounts.
func TestUIDs(t *testing.T) {
	free := func(int) (bool, error) { return false, nil }
	names := []string{"kata", "acme-bmc", "bcx-ipmi"}
	first, err := uids(names, free)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, id := range first {
		if id < firstUID || id > lastUID || seen[id] {
			t.Errorf("uids %v", first)
		}
		seen[id] = true
	}
	again, _ := uids([]string{"bcx-ipmi", "kata", "acme-bmc", "kata"}, free)
	alone, _ := uids([]string{"kata"}, free)
	if !maps.Equal(first, again) || alone["kata"] != first["kata"] {
		t.Errorf("uids change with the order: %v %v %v", first, again, alone)
	}
	moved, _ := uids(names, func(id int) (bool, error) { return id == first["kata"], nil })
	if moved["kata"] != first["kata"]+1 || moved["acme-bmc"] != first["acme-bmc"] {
		t.Errorf("past an account: %v, was %v", moved, first)
	}
	if _, err := uids(names, func(int) (bool, error) { return true, nil }); err == nil {
		t.Error("a uid was found where none is free")
	}
	// Two names of one slot: the first in name order has it, the second the next.
	crowd, slots := make([]string, 400), map[int]bool{}
	for i := range crowd {
		crowd[i] = fmt.Sprintf("plugin-%d", i)
	}
	given, _ := uids(crowd, free)
	for _, id := range given {
		slots[id] = true
	}
	if len(slots) != len(crowd)+1 {
		t.Errorf("%d names have %d uids", len(crowd)+1, len(slots))
	}
}

// TestTwoAppliances gives a plugin of one name different uids in two bcds on a machine, so that neither kills the other's.
func TestTwoAppliances(t *testing.T) {
	needRoot(t)
	a, b := open(t, Config{Enabled: true}), open(t, Config{Enabled: true})
	one, two := start(t, a, plugin(t, "alpha", "wait")), start(t, b, plugin(t, "alpha", "wait"))
	next[string](t, one)
	next[string](t, two)
	if one.Facts.UID == two.Facts.UID {
		t.Fatal("both have one uid")
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := two.Cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the other died too: %v", err)
	}
}
