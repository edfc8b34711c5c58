package netboot

import (
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/better-compute/bcd/netboot/internal/bootfile"
	"github.com/better-compute/bcd/netboot/internal/ipxe"
)

// Loaders lists the file names that Config.Loaders must hold: all that DHCP can hand out.
func Loaders() []string { return bootfile.Loaders() }

// autoexec is what newer iPXE asks the TFTP server for before anything else; without an answer some builds stop.
const autoexec = "autoexec.ipxe"

// withAutoexec adds the script to files that lack it.
type withAutoexec struct{ fs.FS }

// Open opens a file of the underlying files, else the script.
func (w withAutoexec) Open(name string) (fs.File, error) {
	f, err := w.FS.Open(name)
	if err != nil && name == autoexec {
		return &textFile{Reader: strings.NewReader(ipxe.Autoexec())}, nil
	}
	return f, err
}

// textFile is a file made of a string.
type textFile struct{ *strings.Reader }

var _ io.ReadSeeker = (*textFile)(nil)

// Stat describes the file.
func (t *textFile) Stat() (fs.FileInfo, error) { return textInfo{t.Size()}, nil }

// Close does nothing.
func (t *textFile) Close() error { return nil }

type textInfo struct{ size int64 }

func (i textInfo) Name() string     { return autoexec }
func (i textInfo) Size() int64      { return i.size }
func (textInfo) Mode() fs.FileMode  { return 0o444 }
func (textInfo) ModTime() time.Time { return time.Time{} }
func (textInfo) IsDir() bool        { return false }
func (textInfo) Sys() any           { return nil }
