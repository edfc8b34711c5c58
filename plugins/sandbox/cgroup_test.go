package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree writes files of a cgroup hierarchy that is none.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestPrepareCgroups tries what the directory can be, on files.
func TestPrepareCgroups(t *testing.T) {
	whole := map[string]string{
		"s/bcd/cgroup.controllers": "cpu memory pids\n", "s/bcd/cgroup.subtree_control": "", "s/bcd/main/cgroup.procs": "",
		"s/bcd/plugins/cgroup.controllers": "memory pids\n", "s/bcd/plugins/cgroup.subtree_control": "",
	}
	good := func(string) error { return nil }
	for name, tt := range map[string]struct {
		dir, own string // of plugins, and the one this process is in
		check    func(string) error
		change   map[string]string
		err      string
		moved    bool
	}{
		"systemd made main":   {dir: "s/bcd/plugins", own: "/s/bcd/main"},
		"in the parent":       {dir: "s/bcd/plugins", own: "/s/bcd", moved: true},
		"outside":             {dir: "../elsewhere", own: "/", err: "it is not under"},
		"the root itself":     {dir: "", own: "/", err: "it is not under"},
		"version 1":           {dir: "s/bcd/plugins", own: "/", check: isCgroup2, err: "is not in a cgroup v2 hierarchy"},
		"no memory":           {dir: "s/bcd/plugins", own: "/", change: map[string]string{"s/bcd/cgroup.controllers": "cpu pids memory_recursiveprot"}, err: "has no memory controller"},
		"a parent not there":  {dir: "s/none/plugins", own: "/", err: "no such file"},
		"no cgroup v2 of bcd": {dir: "s/bcd/plugins", own: ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, whole)
			for f, text := range tt.change {
				if err := os.WriteFile(filepath.Join(root, f), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			own := "12:pids:/elsewhere\n1:name=systemd:/s/bcd\n"
			if tt.own != "" {
				own += "0::" + tt.own + "\n"
			}
			proc := tree(t, map[string]string{"self/cgroup": own})
			if tt.check == nil {
				tt.check = good
			}
			_, err := prepareCgroups(root, proc, tt.check, Config{Cgroup: root + "/" + tt.dir})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if moved := content(t, root, "s/bcd/main/cgroup.procs") != ""; moved != tt.moved {
				t.Errorf("moved: %v", moved)
			}
		})
	}
}

// TestNoCgroupNoPlugin has a cgroup that cannot be had keep every plugin from running, with the reason.
func TestNoCgroupNoPlugin(t *testing.T) {
	s := open(t, Config{Enabled: true, Cgroup: "/var/lib/plugins"})
	_, err := s.Prepare(t.Context(), Plugin{Name: "alpha"})
	if err == nil || !strings.Contains(err.Error(), "it is not under /sys/fs/cgroup") || len(s.State()) == 0 || s.State()[0] != err.Error() {
		t.Errorf("%v, state %q", err, s.State())
	}
	if !strings.Contains(delegated(unix.EROFS).Error(), "Delegate=yes") || !strings.Contains(delegated(unix.EBUSY).Error(), "DelegateSubgroup=main") {
		t.Error("no way out is told")
	}
	for _, cfg := range []Config{{MemoryMax: 1}, {PidsMax: 1}, {Cgroup: "/sys/fs/cgroup/x", PidsMax: -1}, {ReadPaths: []string{"opt"}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// pidsCgroup is a cgroup of version 1 with the one controller that limits tasks: as much as many a developer's machine has.
func pidsCgroup(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("/sys/fs/cgroup/pids", "bcdt-sandbox-")
	if err != nil {
		t.Skipf("left out: this machine has no pids controller of version 1, and version 2 is tried in a guest: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestNoForkOutrunsKill kills processes that fill all the tasks they may have, and start another for each that dies: they are
// killed by their uid, as this cgroup cannot.
func TestNoForkOutrunsKill(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("left out: the code is for amd64")
	}
	dir := pidsCgroup(t)
	s := open(t, Config{Enabled: true})
	s.cgroups = &cgroups{dir: dir, pidsMax: 48}
	bomb := elf([]byte{0xb8, 57, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7}) // l: mov eax, 57; syscall; jmp l
	l := start(t, s, program(t, "alpha", script(t, bomb)))
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = l.Cmd.Wait()
	for wait := newPatience(time.Minute); content(t, l.Facts.Cgroup, "pids.current") != "0"; { // until all are waited for
		if !wait.more() {
			t.Fatalf("%s processes are left", content(t, l.Facts.Cgroup, "pids.current"))
		}
	}
}

// TestFewTasks runs programs that start threads, each with 32 tasks to have.
func TestFewTasks(t *testing.T) {
	dir := pidsCgroup(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	s.cgroups = &cgroups{dir: dir, pidsMax: 32}
	if got := result[string](t, s, plugin(t, "alpha", "threads")); got != "done" {
		t.Error(got)
	}
	t.Run("node", func(t *testing.T) {
		needProgram(t, "node")
		text := "#!/usr/bin/env -S node --preserve-symlinks-main\n" +
			"const fs = require('fs'), cp = require('child_process');\n" +
			"Promise.all(Array.from({length: 20}, () => fs.promises.readFile('/etc/passwd'))).then(() =>\n" +
			"console.log(fs.readFileSync('/proc/self/cgroup').toString(), cp.execFileSync('true').length))\n"
		out, state := output(t, s, program(t, "beta", script(t, text)))
		if !strings.Contains(out, filepath.Base(dir)+"/bcx-beta\n") || !state.Success() {
			t.Errorf("it ended with %s: %q", state, out)
		}
	})
}
