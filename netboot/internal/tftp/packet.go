package tftp

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
)

// Opcodes of RFC 1350 and RFC 2347.
const (
	opRead  = 1
	opWrite = 2
	opData  = 3
	opAck   = 4
	opError = 5
	opOACK  = 6
)

// Error codes of RFC 1350.
const (
	codeOther      = 0
	codeNotFound   = 1
	codeViolation  = 2
	codeIllegal    = 4
	maxRequest     = 2048 // bytes of a request
	maxRequestOpts = 16
)

// readRequest is a read request with the options that we take up, within our limits.
type readRequest struct {
	name     string // as written: hostile text
	netascii bool
	block    int           // bytes of data in a packet
	window   int           // packets before an acknowledgement (RFC 7440)
	wait     time.Duration // for one acknowledgement
	accepted []accepted    // options to acknowledge, in the client's order
	size     bool          // the client wants to know the size
}

type accepted struct{ name, value string }

// parseRead reads a read request without its opcode. It reports false for what is none.
func parseRead(b []byte) (r readRequest, ok bool) {
	r = readRequest{block: 512, window: 1, wait: timeout}
	if len(b) > maxRequest || bytes.Count(b, []byte{0}) < 2 {
		return r, false
	}
	fields := strings.Split(string(b), "\x00")
	r.name = fields[0]
	switch strings.ToLower(fields[1]) {
	case "octet":
	case "netascii":
		r.netascii = true
	default:
		return r, false
	}
	rest := fields[2 : len(fields)-1] // the last is what follows the last NUL
	for i := 0; i+1 < len(rest) && i < 2*maxRequestOpts; i += 2 {
		r.option(strings.ToLower(rest[i]), rest[i+1])
	}
	return r, true
}

// option takes up one option. One that is malformed, out of bounds or there a second time is as if it were not there.
func (r *readRequest) option(name, value string) {
	for _, a := range r.accepted {
		if a.name == name {
			return
		}
	}
	n, err := strconv.Atoi(value)
	switch {
	case err != nil || n < 0:
		return
	case name == "blksize" && n >= 8 && n <= 65464:
		r.block = min(n, maxBlock)
		n = r.block
	case name == "windowsize" && n >= 1 && n <= 65535:
		r.window = min(n, maxWindow)
		n = r.window
	case name == "timeout" && n >= 1 && n <= maxTimeout:
		r.wait = time.Duration(n) * time.Second
	case name == "tsize":
		r.size = true
	default:
		return
	}
	r.accepted = append(r.accepted, accepted{name, strconv.Itoa(n)})
}

// bound lowers the size of blocks to most, and what is acknowledged of it. A most of 0 bounds nothing.
func (r *readRequest) bound(most int) {
	if most == 0 || r.block <= most {
		return
	}
	r.block = most
	for i := range r.accepted {
		if r.accepted[i].name == "blksize" {
			r.accepted[i].value = strconv.Itoa(most)
		}
	}
}

// oack is the acknowledgement of the options, nil when there are none.
func (r *readRequest) oack(size int64) []byte {
	if len(r.accepted) == 0 {
		return nil
	}
	b := binary.BigEndian.AppendUint16(nil, opOACK)
	for _, a := range r.accepted {
		if a.name == "tsize" {
			a.value = strconv.FormatInt(size, 10)
		}
		b = append(append(append(append(b, a.name...), 0), a.value...), 0)
	}
	return b
}

// errorPacket tells a client why it gets nothing.
func errorPacket(code uint16, message string) []byte {
	b := binary.BigEndian.AppendUint16(nil, opError)
	b = binary.BigEndian.AppendUint16(b, code)
	return append(append(b, message...), 0)
}

// netascii is the form of text in RFC 764: lines end in CR LF, a CR alone is CR NUL.
func netascii(b []byte) []byte {
	b = bytes.ReplaceAll(b, []byte("\r"), []byte("\r\x00"))
	return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
}
