package inventory

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var quiet = slog.New(slog.DiscardHandler)

// tree writes files below dir; a value that starts with "->" is a symbolic link, relative to its folder.
func tree(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, body := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(body, "->"); ok {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(body), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// disk adds a block device at a place in the device tree.
func disk(files map[string]string, name, place string, attrs map[string]string) {
	at := "devices/" + place + "/block/" + name + "/"
	files["block/"+name] = "->../" + strings.TrimSuffix(at, "/")
	files[at+"size"] = "2097152\n"
	files[at+"queue/logical_block_size"] = "512\n"
	files[at+"queue/physical_block_size"] = "4096\n"
	files[at+"queue/rotational"] = "0\n"
	files[at+"removable"], files[at+"ro"] = "0\n", "0\n"
	for k, v := range attrs {
		files[at+k] = v
	}
}

// page makes a VPD page.
func page(code byte, body string) string {
	return string([]byte{0, code, byte(len(body) >> 8), byte(len(body))}) + body
}

// name makes one designator of VPD page 0x83.
func name(set, kind byte, id string) string {
	return string([]byte{set, kind, 0, byte(len(id))}) + id
}
