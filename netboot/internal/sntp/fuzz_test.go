package sntp

import (
	"testing"
	"time"
)

// Whatever is asked, the answer is none or one of an answer's length and mode, never longer than the question: nobody is made to
// flood a third.
func FuzzReply(f *testing.F) {
	q := make([]byte, packetLen)
	q[0] = 4<<3 | 3
	f.Add(q)
	f.Add(append(q, make([]byte, 20)...))
	f.Add([]byte{0x1b})
	f.Fuzz(func(t *testing.T, q []byte) {
		b := reply(q, Health{Synchronised: true, MaxError: time.Second}, time.Now)
		if b != nil && (len(b) != packetLen || len(b) > len(q) || b[0]&7 != 4 || q[0]&7 != 3) {
			t.Fatalf("%x was answered with %x", q, b)
		}
		if reply(q, Health{}, time.Now) != nil {
			t.Fatal("answered without a clock")
		}
	})
}
