package busybox

import (
	"path"
	"slices"
	"testing"
)

// TestList: the shell, the tools to look at a machine with, and no second init.
func TestList(t *testing.T) {
	cmds, err := List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range cmds {
		names = append(names, path.Base(c))
	}
	for _, want := range []string{"gosh", "ls", "cat", "mount", "dmesg", "ip", "shutdown", "sshd"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among the commands", want)
		}
	}
	if slices.Contains(names, "init") {
		t.Error("u-root's init would shadow the agent's")
	}
}
