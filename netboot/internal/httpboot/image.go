package httpboot

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The files of one boot, below /boot/KEY/, beside its boot data.
const (
	Program = "boot.efi" // the EFI program that boots one machine into the ramdisk
	CD      = "boot.iso" // the CD around it, for virtual media
)

// Image is a large file that belongs to one boot.
type Image struct {
	io.ReaderAt
	Size      int64
	Tag       string // a strong validator: equal bytes, equal tag
	MachineID string
}

// types are the media types of the UEFI specification (2.10, 24.7.3.1), by which HTTP Boot knows what it loads.
var types = map[string]string{Program: "application/efi", CD: "application/vnd.efi-iso"}

// image serves a file of one boot: HEAD, any range and the whole are of the same bytes, however often they are asked for.
func (s *Server) image(w http.ResponseWriter, r *http.Request, key, file string) {
	i, err := s.cfg.Image(r.Context(), key, file)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if rec, ok := w.(*recorder); ok {
		rec.size, rec.owner = i.Size, i.MachineID
	}
	w.Header().Set("ETag", `"`+i.Tag+`"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", types[file])
	s.begun(w, r, file)
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(i, 0, i.Size))
}

// begun tells that firmware began to load its program. That takes half a minute on some, which would look like silence.
func (s *Server) begun(w http.ResponseWriter, r *http.Request, file string) {
	rec, ok := w.(*recorder)
	if from := r.Header.Get("Range"); !ok || file != Program || r.Method != http.MethodGet || from != "" && !strings.HasPrefix(from, "bytes=0-") {
		return
	}
	t := rec.transfer(r)
	t.Begun = true
	s.cfg.Record(t)
}

// exit serves the program that sends a UEFI machine on in its boot order.
func (s *Server) exit(w http.ResponseWriter, r *http.Request) {
	b := exitProgram()
	if rec, ok := w.(*recorder); ok {
		rec.size = int64(len(b))
	}
	w.Header().Set("Content-Type", types[Program])
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(b))
}

// telling reports an answer that a timeline should have. A BMC reads a CD in thousands of ranges, block by block, and some
// firmware its program: those that hold neither the first byte nor the last one tell nothing.
func telling(w http.ResponseWriter) bool {
	rest, ok := strings.CutPrefix(w.Header().Get("Content-Range"), "bytes ")
	if !ok || strings.HasPrefix(rest, "0-") {
		return true
	}
	_, rest, _ = strings.Cut(rest, "-")
	last, size, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(last, 10, 64)
	return err != nil || strconv.FormatInt(n+1, 10) == size
}

// HideKey takes the key, which opens something, out of the path or address of a file below /boot/KEY/.
func HideKey(s string) string {
	at := strings.Index(s, "/boot/")
	if at < 0 {
		return s
	}
	_, file, ok := keyed(s[at:])
	if !ok {
		return s
	}
	return s[:at] + "/boot/KEY/" + file
}
