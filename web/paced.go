package web

import (
	"net/http"
	"time"
)

// partSize is how many bytes must leave within the time of a part: with a minute, 4 KiB a second.
const partSize = 256 << 10

// paced gives each part of an answer its time, so that an answer may be long and its reader slow, but not still. It does so for
// each request, as HTTP/2 has many on one connection, of which a reader may take in some and not others.
type paced struct {
	http.ResponseWriter
	rc   *http.ResponseController // of ResponseWriter
	part time.Duration
}

// Unwrap lets handlers set limits of their own, which hold until the next write.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// extend gives the next part its time. What cannot, in a test, has no reader to wait for.
func (p *paced) extend() { _ = p.rc.SetWriteDeadline(time.Now().Add(p.part)) }

// Write sends b in parts.
func (p *paced) Write(b []byte) (sent int, err error) {
	for {
		p.extend()
		n, err := p.ResponseWriter.Write(b[sent:min(len(b), sent+partSize)])
		sent += n
		if err != nil || sent == len(b) {
			return sent, err
		}
	}
}
