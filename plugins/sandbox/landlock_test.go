package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func needLandlock(t testing.TB) int {
	t.Helper()
	needRoot(t)
	v := landlockVersion()
	if v == 0 {
		t.Skip("left out: this kernel has no Landlock")
	}
	return v
}

// TestFiles tries what a plugin may and may not do with files that permissions alone would let everybody use.
func TestFiles(t *testing.T) {
	needLandlock(t)
	open777 := func(name, text string) string { // a file everybody may do anything with
		dir := socketDir(t)
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
		if os.Chmod(dir, 0o777) != nil || os.Chmod(p, 0o777) != nil {
			t.Fatal("opening", dir)
		}
		return p
	}
	hidden, shown := open777("hidden", "#!/bin/sh\n"), open777("shown", "#!/bin/sh\n")
	p := plugin(t, "alpha", "files")
	own := filepath.Join(p.SocketDir, "file")
	want := map[string]string{
		"write " + own:      "",
		"read " + own:       "",
		"run " + own:        "EACCES",
		"read " + hidden:    "EACCES",
		"run " + hidden:     "EACCES",
		"write " + hidden:   "EACCES",
		"read " + shown:     "",
		"run " + shown:      "",
		"write " + shown:    "EACCES",
		"write /tmp/x":      "EACCES",
		"write /dev/shm/x":  "EACCES",
		"list /tmp":         "EACCES",
		"list /":            "EACCES",
		"list /dev":         "EACCES",
		"list /var":         "EACCES",
		"list /home":        "EACCES",
		"list /usr/bin":     "",
		"read /etc/passwd":  "",
		"read /etc/shadow":  "EACCES",
		"read /proc/uptime": "",
		"read /proc/1/mem":  "EACCES",
		"run /bin/true":     "",
		"write /dev/null":   "",
	}
	p.Args = append(p.Args, "write "+own) // before it is read and run
	p.Args = slices.AppendSeq(p.Args, maps.Keys(want))
	s := open(t, Config{Enabled: true, Landlock: true, ReadPaths: []string{shown, "/nowhere"}})
	got := result[map[string]string](t, s, p)
	for k, errno := range want {
		if got[k] != errno {
			t.Errorf("%s: %q, want %q", k, got[k], errno)
		}
	}
	// The same without Landlock, so that it is Landlock which refused.
	p.SocketDir, p.Args = socketDir(t), []string{probeArg, "files", "read " + hidden, "run " + hidden, "write " + hidden, "list /tmp"}
	for k, errno := range result[map[string]string](t, open(t, Config{Enabled: true}), p) {
		if errno != "" {
			t.Errorf("without Landlock, %s: %s", k, errno)
		}
	}
}

// TestSharedUIDSeesLess leaves out of /etc what permissions would otherwise have to keep from bcd's own uid.
func TestSharedUIDSeesLess(t *testing.T) {
	shared, err1 := files{socketDir: "/run", shared: true}.rules()
	own, err2 := files{socketDir: "/run"}.rules()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	whole := func(rules any) bool { return strings.Contains(fmt.Sprint(rules), "[/etc]") }
	if whole(shared) || !whole(own) {
		t.Errorf("shared %s\nown %s", shared, own)
	}
}

// TestPrograms runs what plugins are made of under all there is: programs that start many threads, and ipmitool.
func TestPrograms(t *testing.T) {
	needLandlock(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	for _, tt := range []struct {
		program, script string
		want            string // in its output
	}{
		{"ipmitool", "#!/bin/sh\nexec ipmitool -I lanplus -H 192.0.2.1 -U user -f /dev/fd/5 -N 1 -R 1 raw 5<<E 2>&1\nsecret\nE\n", "Unable to establish"},
		{"ipmitool", "#!/bin/sh\nipmitool -V\n", "ipmitool version"},
		{"node", "#!/usr/bin/env -S node --preserve-symlinks-main\nconst net = require('net'), dns = require('dns'), tls = require('tls'), fs = require('fs'), cp = require('child_process');\n" +
			"tls.createSecureContext(); dns.lookup('localhost', (e, a) => { if (e) throw e;\n" +
			"net.createServer().listen(process.env.BCX_SOCKET_DIR + '/plugin.sock', function () {\n" +
			"console.log('listening', a, cp.execFileSync('ipmitool', ['-V']).toString()); this.close() }) })\n", "listening"},
		{"sh", "#!/bin/sh\nexec script -qec 'tty' /dev/null\n", "/dev/pts/"},
	} {
		t.Run(tt.program, func(t *testing.T) {
			needProgram(t, tt.program)
			p := program(t, "alpha", script(t, tt.script))
			p.Env = append(p.Env, "BCX_SOCKET_DIR="+p.SocketDir)
			if out, state := output(t, s, p); !strings.Contains(out, tt.want) {
				t.Errorf("it ended with %s and printed %q", state, out)
			}
		})
	}
}

// TestSignalsStayInside has plugins of one account leave each other alone where the kernel scopes signals.
func TestSignalsStayInside(t *testing.T) {
	if needLandlock(t) < 6 {
		t.Skip("left out: this kernel's Landlock does not scope signals")
	}
	s := open(t, Config{Enabled: true, Landlock: true, User: "games"})
	other := start(t, s, plugin(t, "beta", "wait"))
	next[string](t, other)
	got := result[map[string]string](t, s, plugin(t, "alpha", "peek", strconv.Itoa(other.Cmd.Process.Pid), "4096"))
	for _, what := range []string{"kill", "process_vm_readv", "mem", "environ"} {
		if !slices.Contains([]string{"EPERM", "EACCES"}, got[what]) {
			t.Errorf("%s: %q", what, got[what])
		}
	}
}
