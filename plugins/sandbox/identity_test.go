package sandbox

import (
	"slices"
	"testing"
)

// TestInside looks at the plugin from inside.
func TestInside(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	p := plugin(t, "alpha", "self", "one", "two")
	p.Env = []string{"PATH=/usr/bin:/bin", "BCX_MAGIC_COOKIE=cookie", "BCX_SOCKET_DIR=" + p.SocketDir, "BCX_CLIENT_CERT=cert"}
	r := prepare(t, s, p)
	f := result[selfFacts](t, s, p)
	uid := r.Facts.UID
	if uid < firstUID || uid > lastUID || !slices.Equal(f.UIDs, []int{uid, uid, uid}) || !slices.Equal(f.GIDs, []int{uid, uid, uid}) || len(f.Groups) != 0 {
		t.Errorf("uids %v, gids %v, groups %v; uid %d was given", f.UIDs, f.GIDs, f.Groups, uid)
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
	// 4 is the directory being read, and what Go opens for itself.
	if !slices.Equal(f.FDs[:4], []string{"0", "1", "2", "3"}) {
		t.Errorf("descriptors %v", f.FDs)
	}
	t.Log(f.FDs, r.Facts)
}
