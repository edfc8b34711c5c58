package httpboot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/pe"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// program stands for a boot program; no two of its blocks are alike.
var program = func() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 300_000; i++ {
		fmt.Fprintf(&b, "%07d ", i)
	}
	return b.Bytes()[:299_999]
}()

// imageServer serves program as both files of the boot "k3y", and keeps what it records.
func imageServer(records *[]Transfer) *Server {
	sum := sha256.Sum256(program)
	return New(Config{
		Image: func(_ context.Context, key, file string) (Image, error) {
			switch {
			case key == "revoked":
				return Image{}, app.Errorf(app.Conflict, "revoked", "this boot is over")
			case key != "k3y":
				return Image{}, app.Missing("boot", key)
			}
			return Image{ReaderAt: bytes.NewReader(program), Size: int64(len(program)), Tag: file + hex.EncodeToString(sum[:8]), MachineID: "m-1"}, nil
		},
		BootData: func(context.Context, string) ([]byte, error) { return []byte("070701"), nil },
		Record:   func(t Transfer) { *records = append(*records, t) },
		Log:      slog.New(slog.DiscardHandler),
	})
}

// ask sends one request past any network.
func ask(s *Server, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://192.0.2.1:8080/", nil)
	r.URL.Path, r.URL.RawPath = target, ""
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// HEAD, any range and the whole agree byte for byte, and so do two fetches: firmware asks for the size, fetches, and fetches
// again; a BMC reads a CD in blocks.
func TestHeadRangeAndGetAgree(t *testing.T) {
	var records []Transfer
	s := imageServer(&records)
	for file, kind := range map[string]string{Program: "application/efi", CD: "application/vnd.efi-iso"} {
		target := "/boot/k3y/" + file
		head, whole, again := ask(s, "HEAD", target), ask(s, "GET", target), ask(s, "GET", target)
		size := fmt.Sprint(len(program))
		for name, w := range map[string]*httptest.ResponseRecorder{"HEAD": head, "GET": whole, "second GET": again} {
			h := w.Header()
			if w.Code != 200 || h.Get("Content-Length") != size || h.Get("Content-Type") != kind || h.Get("Accept-Ranges") != "bytes" || h.Get("ETag") != head.Header().Get("ETag") || h.Get("ETag") == "" {
				t.Errorf("%s %s: %d %v", name, file, w.Code, h)
			}
		}
		if head.Body.Len() != 0 || !bytes.Equal(whole.Body.Bytes(), program) || !bytes.Equal(again.Body.Bytes(), program) {
			t.Errorf("%s: HEAD has %d bytes, GET %d and %d", file, head.Body.Len(), whole.Body.Len(), again.Body.Len())
		}
		var joined []byte
		for at := 0; at < len(program); at += 65536 {
			w := ask(s, "GET", target, "Range", fmt.Sprintf("bytes=%d-%d", at, at+65535), "If-Range", head.Header().Get("ETag"))
			if w.Code != 206 {
				t.Fatalf("range at %d: %d", at, w.Code)
			}
			joined = append(joined, w.Body.Bytes()...)
		}
		if !bytes.Equal(joined, program) {
			t.Errorf("%s: the ranges together differ from the whole", file)
		}
		if w := ask(s, "HEAD", target, "Range", "bytes=0-9"); w.Code != 206 || w.Body.Len() != 0 || w.Header().Get("Content-Range") != "bytes 0-9/"+size {
			t.Errorf("HEAD of a range: %d %v", w.Code, w.Header())
		}
		if w := ask(s, "GET", target, "Range", "bytes=0-9", "If-Range", `"another"`); w.Code != 200 || w.Body.Len() != len(program) {
			t.Errorf("a range of another file: %d, %d bytes", w.Code, w.Body.Len())
		}
	}
}

// What is recorded names the machine and not the key, and a CD that is read in blocks does not fill a timeline.
func TestImagesOnTimelines(t *testing.T) {
	var records []Transfer
	s := imageServer(&records)
	for at := 0; at < len(program); at += 2048 {
		ask(s, "GET", "/boot/k3y/"+CD, "Range", fmt.Sprintf("bytes=%d-%d", at, at+2047))
	}
	if len(records) != 2 {
		t.Errorf("%d records of a CD that was read in blocks", len(records))
	}
	ask(s, "GET", "/boot/k3y/"+CD, "Range", "bytes=999999999-")
	ask(s, "HEAD", "/boot/k3y/"+Program)
	ask(s, "GET", "/boot/k3y/"+Program)
	ask(s, "GET", "/boot/revoked/"+Program)
	ask(s, "GET", "/boot/k3y/boot.EFI")
	var got []string
	for _, x := range records[2:] {
		got = append(got, fmt.Sprintf("%s %s %d %d/%d %t %s", x.Method, x.Path, x.Status, x.Bytes, x.Size, x.Begun, x.MachineID))
	}
	n := len(program)
	want := []string{
		fmt.Sprintf("GET /boot/KEY/boot.iso 416 %d/%d false m-1", records[2].Bytes, n), fmt.Sprintf("HEAD /boot/KEY/boot.efi 200 0/%d false m-1", n),
		fmt.Sprintf("GET /boot/KEY/boot.efi 200 0/%d true m-1", n), fmt.Sprintf("GET /boot/KEY/boot.efi 200 %d/%d false m-1", n, n),
		fmt.Sprintf("GET /boot/KEY/boot.efi 403 %d/0 false ", records[6].Bytes), fmt.Sprintf("GET /boot/KEY/boot.EFI 404 %d/0 false ", records[7].Bytes),
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Case 27 for the machine's own files: firmware writes slashes as it likes and follows no redirect.
func TestPathsOfImages(t *testing.T) {
	var records []Transfer
	s := imageServer(&records)
	for target, want := range map[string]int{
		"/boot/k3y/boot.efi": 200, "//boot/k3y/boot.efi": 200, "/boot//k3y//boot.efi": 200, "/boot/./k3y/boot.iso": 200, "/boot/disk.efi": 200, "//boot//disk.efi": 200,
		"/boot/k3y/boot.efi/": 404, "/boot/k3y/": 404, "/boot/k3y/boot.efi/x": 404, "/boot/boot.efi": 404, "/boot/disk.efi/": 404,
		"/boot/none/boot.efi": 404, "/boot/revoked/boot.iso": 403, "/boot/" + strings.Repeat("k", 129) + "/boot.efi": 404, "/boot/k 3y/boot.efi": 404,
		"/boot/x/../k3y/boot.efi": 400, "/boot/k3y/..": 400, "/boot/k3y\x00/boot.efi": 400, "boot/k3y/boot.efi": 400,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			if w := ask(s, method, target); w.Code != want {
				t.Errorf("%s %q: %d, want %d", method, target, w.Code, want)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PROPFIND"} {
		if w := ask(s, method, "/boot/k3y/boot.efi"); w.Code != 405 {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	for _, x := range records {
		if strings.Contains(x.Path, "k3y") || strings.Contains(x.Path, "kkk") {
			t.Errorf("a key was recorded: %q", x.Path)
		}
	}
}

// The program that idle machines get is one that UEFI starts.
func TestExitProgram(t *testing.T) {
	var records []Transfer
	body := ask(imageServer(&records), "GET", "/boot/disk.efi").Body.Bytes()
	f, err := pe.NewFile(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	h := f.OptionalHeader.(*pe.OptionalHeader64)
	if f.Machine != pe.IMAGE_FILE_MACHINE_AMD64 || h.Subsystem != pe.IMAGE_SUBSYSTEM_EFI_APPLICATION || len(f.Sections) != 2 {
		t.Errorf("%+v", f.FileHeader)
	}
	for _, s := range f.Sections {
		if s.VirtualAddress+s.VirtualSize > h.SizeOfImage || int(s.Offset+s.Size) > len(body) || s.VirtualSize > s.Size {
			t.Errorf("section %+v", s.SectionHeader)
		}
	}
	text, err := f.Sections[0].Data()
	if err != nil || h.AddressOfEntryPoint != f.Sections[0].VirtualAddress || !bytes.HasPrefix(text, []byte("\x48\x83\xec\x28")) {
		t.Errorf("it does not begin with its code: %x, %v", text[:4], err)
	}
	if at := bytes.Index(text, []byte("b\x00c\x00d\x00:\x00")); at != 20+20 {
		t.Errorf("the text is at %d", at)
	}
}

func TestHideKey(t *testing.T) {
	for in, want := range map[string]string{
		"http://192.0.2.1:8080/boot/boot-x/boot.efi": "http://192.0.2.1:8080/boot/KEY/boot.efi", "/boot/boot-x/bootdata.cpio": "/boot/KEY/bootdata.cpio",
		"http://192.0.2.1:8080/ipxe/snponly.efi": "http://192.0.2.1:8080/ipxe/snponly.efi", "/boot/disk.efi": "/boot/disk.efi", "snponly.efi": "snponly.efi", "": "",
		"http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01": "http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01", "/boot/boot/boot": "/boot/KEY/boot",
	} {
		if got := HideKey(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// Whatever a Range header says, the answer is right bytes of the file or a refusal. (The last 0 bytes are none, of net/http.)
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-", "bytes=0-0,-1", "bytes=5-3", "bytes=-0", "bytes=-99999999999999999999", "bytes=0-,0-,0-,0-", "bytes=1-2,4-5", "bits=0-1", "bytes=299998-400000", "bytes= 1 - 2", strings.Repeat("bytes=0-1,", 500)} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, header string, head bool) {
		method := map[bool]string{true: "HEAD", false: "GET"}[head]
		var records []Transfer
		w := ask(imageServer(&records), method, "/boot/k3y/"+Program, "Range", header)
		body := w.Body.Bytes()
		switch kind, params, _ := mime.ParseMediaType(w.Header().Get("Content-Type")); {
		case w.Code == 416:
		case head && len(body) > 0:
			t.Fatalf("HEAD with %d bytes", len(body))
		case head && (w.Code == 200 || w.Code == 206):
		case w.Code == 200 && bytes.Equal(body, program):
		case w.Code == 206 && kind == "multipart/byteranges":
			if len(body) > 2*len(program) {
				t.Fatalf("%d bytes for %q", len(body), header)
			}
			parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
			for p, err := parts.NextPart(); err != io.EOF; p, err = parts.NextPart() {
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(p)
				checkRange(t, p.Header.Get("Content-Range"), b)
			}
		case w.Code == 206:
			checkRange(t, w.Header().Get("Content-Range"), body)
		default:
			t.Fatalf("%s %q: %d, %d bytes", method, header, w.Code, len(body))
		}
	})
}

func checkRange(t *testing.T, header string, body []byte) {
	t.Helper()
	var from, to, size int
	if _, err := fmt.Sscanf(header, "bytes %d-%d/%d", &from, &to, &size); err != nil || size != len(program) || from < 0 || to < from-1 || to >= size || !bytes.Equal(body, program[from:to+1]) {
		t.Fatalf("%q came with %d bytes: %v", header, len(body), err)
	}
}
