package deb

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

type entry struct{ name, link, body string }

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.body)), Mode: 0o644, Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, e.body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pack(t testing.TB, ext string, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch ext {
	case "":
		return raw
	case ".gz":
		w = gzip.NewWriter(&b)
	case ".xz":
		w, err = xz.NewWriter(&b)
	case ".zst":
		w, err = zstd.NewWriter(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Write(raw)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func arOf(members ...entry) []byte {
	var b bytes.Buffer
	b.WriteString(arMagic)
	for _, m := range members {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.body))
		b.WriteString(m.body)
		if len(m.body)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func debOf(t testing.TB, ext string, entries ...entry) []byte {
	control := tarOf(t, entry{name: "./control", body: "Package: linux-image-6.1.0-1-amd64\nSource: linux-signed-amd64 (6.1.1+1)\nVersion: 6.1.1-1\nArchitecture: amd64\nDescription: x\n Version: not this\n"})
	return arOf(entry{name: "debian-binary", body: "2.0\n"},
		entry{name: "control.tar" + ext, body: string(pack(t, ext, control))},
		entry{name: "data.tar" + ext, body: string(pack(t, ext, tarOf(t, entries...)))})
}

// TestRead reads the same package in each compression dpkg-deb writes.
func TestRead(t *testing.T) {
	for _, ext := range []string{"", ".gz", ".xz", ".zst"} {
		t.Run("tar"+ext, func(t *testing.T) {
			b := debOf(t, ext, entry{name: "./boot/vmlinuz", body: "kernel"}, entry{name: "./lib/firmware/a.bin", link: "b.bin"})
			var got []string
			err := Read(bytes.NewReader(b), func(c Control) error {
				got = append(got, fmt.Sprintf("%+v", c))
				return nil
			}, func(f File) error {
				body, err := io.ReadAll(f.Body)
				got = append(got, fmt.Sprintf("%c %s %s %s", f.Type, f.Name, f.Link, body))
				return err
			})
			want := []string{
				"{Package:linux-image-6.1.0-1-amd64 Version:6.1.1-1 Architecture:amd64 Source:linux-signed-amd64 (6.1.1+1)}",
				"0 boot/vmlinuz  kernel", "2 lib/firmware/a.bin b.bin ",
			}
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
		})
	}
}

// TestReadRefuses: each way a download can be wrong is an error, none a panic or a short read that looks whole.
func TestReadRefuses(t *testing.T) {
	good := debOf(t, ".xz", entry{name: "a", body: strings.Repeat("x", 100_000)})
	for name, b := range map[string][]byte{
		"empty":             nil,
		"html":              []byte("<html>404</html>"),
		"half":              good[:len(good)/2],
		"one byte short":    good[:len(good)-40],
		"no data member":    arOf(entry{name: "debian-binary", body: "2.0\n"}),
		"format 3":          arOf(entry{name: "debian-binary", body: "3.0\n"}),
		"climbing name":     debOf(t, "", entry{name: "../../etc/shadow", body: "x"}),
		"unknown method":    arOf(entry{name: "control.tar.lzma", body: "x"}),
		"negative size":     []byte(arMagic + fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", "x", 0, 0, 0, "0", -2)),
		"data first":        arOf(entry{name: "data.tar", body: string(tarOf(t))}),
		"control not in it": arOf(entry{name: "control.tar", body: string(tarOf(t, entry{name: "md5sums"}))}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := Read(bytes.NewReader(b), func(Control) error { return nil }, drain); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func drain(f File) error { _, err := io.Copy(io.Discard, f.Body); return err }

func FuzzRead(f *testing.F) {
	f.Add(debOf(f, "", entry{name: "./boot/vmlinuz", body: "kernel"}))
	f.Add(debOf(f, ".gz", entry{name: "./a", link: "b"}))
	f.Add(debOf(f, ".zst", entry{name: "./a", body: "b"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = Read(bytes.NewReader(b), func(Control) error { return nil }, func(file File) error {
			if strings.HasPrefix(file.Name, "../") || strings.HasPrefix(file.Name, "/") {
				t.Errorf("name %q leaves the root", file.Name)
			}
			_, err := io.Copy(io.Discard, io.LimitReader(file.Body, 1<<20))
			return err
		})
	})
}
