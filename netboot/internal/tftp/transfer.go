package tftp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// errProbe is a client that asked for the size and stopped there, as EDK2 does before it fetches a file: it answers the
// option acknowledgement with an error.
var errProbe = errors.New("the client asked for the size only")

// peer is the way to one client.
type peer interface {
	send(b []byte) error
	// receive gives the next datagram of the client, in b if it can, or os.ErrDeadlineExceeded.
	receive(b []byte, until time.Time) ([]byte, error)
	// stop ends a receive under way. It may be called by others, before close or after.
	stop()
	close()
}

// sender sends one file. Its window is a ring of packets, kept until they are acknowledged.
type sender struct {
	peer    peer
	in      io.Reader
	req     readRequest
	tries   int // times that a packet is sent again before the client counts as gone
	ring    []byte
	lengths [maxWindow]int
	first   uint64 // block number of the oldest packet that is not acknowledged
	next    uint64 // block number after the newest that was read
	done    bool   // the last block was read
	bytes   int64  // acknowledged
	retries int
	reply   [516]byte
}

// run sends everything. oack may be nil.
func (s *sender) run(oack []byte) error {
	if oack != nil {
		if err := s.acknowledged(oack); err != nil {
			return err
		}
	}
	s.first, s.next = 1, 1
	s.ring = make([]byte, s.req.window*(4+s.req.block))
	sent := s.first // first packet that is to be sent next
	for {
		if err := s.fill(); err != nil {
			return err
		}
		if s.first == s.next {
			return nil
		}
		if err := s.flush(sent); err != nil {
			return err
		}
		var err error
		if sent, err = s.progress(); err != nil {
			return err
		}
	}
}

// acknowledged sends the option acknowledgement until block 0 is acknowledged.
func (s *sender) acknowledged(oack []byte) error {
	for try := range 1 + s.tries {
		s.retries += min(try, 1)
		if err := s.peer.send(oack); err != nil {
			return fmt.Errorf("sending the option acknowledgement: %w", err)
		}
		for until := time.Now().Add(s.req.wait); ; {
			block, err := s.ack(until)
			var refused *clientError
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
			case errors.As(err, &refused):
				return fmt.Errorf("%w: %w", errProbe, err)
			case err != nil:
				return err
			case block == 0:
				return nil
			default:
				continue
			}
			break
		}
	}
	return errSilent
}

// fill reads blocks until the window is full or the file ends. A file that ends with a full block is followed by an
// empty one.
func (s *sender) fill() error {
	for !s.done && s.next-s.first < uint64(s.req.window) {
		p := s.slot(s.next)
		n, err := io.ReadFull(s.in, p[4:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("reading the file: %w", err)
		}
		binary.BigEndian.PutUint16(p, opData)
		binary.BigEndian.PutUint16(p[2:], uint16(s.next)) // the number of a long file's blocks wraps to 0
		s.lengths[s.next%uint64(s.req.window)] = 4 + n
		s.done = n < s.req.block
		s.next++
	}
	return nil
}

func (s *sender) slot(block uint64) []byte {
	n := 4 + s.req.block
	i := int(block % uint64(s.req.window))
	return s.ring[i*n : (i+1)*n]
}

// flush sends the packets of the window from a block on.
func (s *sender) flush(from uint64) error {
	for b := from; b < s.next; b++ {
		if err := s.peer.send(s.slot(b)[:s.lengths[b%uint64(s.req.window)]]); err != nil {
			return fmt.Errorf("sending block %d: %w", b, err)
		}
	}
	return nil
}

// progress waits until something of the window is acknowledged and gives the block to go on with. After a timeout that is
// the oldest one. An acknowledgement of what was acknowledged before is let pass: who answers it sends everything twice.
func (s *sender) progress() (from uint64, err error) {
	for try := 0; ; {
		until := time.Now().Add(s.req.wait)
		for {
			block, err := s.ack(until)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return 0, err
			}
			n := uint64(block - uint16(s.first-1))
			if n == 0 || n > s.next-s.first {
				continue
			}
			for range n {
				s.bytes += int64(s.lengths[s.first%uint64(s.req.window)] - 4)
				s.first++
			}
			if s.first < s.next {
				return s.first, nil // a packet of the window was lost (RFC 7440)
			}
			return s.next, nil
		}
		if try++; try > s.tries {
			return 0, errSilent
		}
		s.retries++
		if err := s.flush(s.first); err != nil {
			return 0, err
		}
	}
}

var errSilent = errors.New("the client stopped answering")

// clientError is the error packet of a client.
type clientError struct {
	code    uint16
	message string // hostile text
}

func (e *clientError) Error() string {
	return fmt.Sprintf("the client gave up with code %d %q", e.code, e.message)
}

// ack waits for an acknowledgement and gives its block number. Anything else that is no error packet is ignored.
func (s *sender) ack(until time.Time) (uint16, error) {
	for {
		b, err := s.peer.receive(s.reply[:], until)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return 0, fmt.Errorf("the client is gone: %w", err)
		}
		if err != nil {
			return 0, err
		}
		if len(b) < 4 {
			continue
		}
		switch n := binary.BigEndian.Uint16(b[2:]); binary.BigEndian.Uint16(b) {
		case opAck:
			return n, nil
		case opError:
			message, _, _ := strings.Cut(string(b[4:]), "\x00")
			return 0, &clientError{n, strings.ToValidUTF8(message, "�")}
		}
	}
}

// sharedPeer is a client that is answered from the server's port.
type sharedPeer struct {
	to    func(b []byte) error
	from  chan []byte
	ended <-chan struct{} // the server is stopping, or the client asked anew
}

func (p sharedPeer) send(b []byte) error { return p.to(b) }

func (sharedPeer) stop() {} // ended says it

func (sharedPeer) close() {}

func (p sharedPeer) receive(_ []byte, until time.Time) ([]byte, error) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case b := <-p.from:
		return b, nil
	case <-p.ended:
		return nil, net.ErrClosed
	case <-t.C:
	}
	select {
	case b := <-p.from: // it came in time, to a process that stood still
		return b, nil
	default:
		return nil, os.ErrDeadlineExceeded
	}
}
