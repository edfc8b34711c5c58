package host

import (
	"io"
	"sync"
)

// countedStream is an open stream of a plugin.
type countedStream struct {
	io.ReadWriteCloser
	p    *plugin
	once sync.Once
}

// Close closes the stream and counts it out.
func (s *countedStream) Close() error {
	defer s.once.Do(s.p.left)
	return s.ReadWriteCloser.Close()
}
