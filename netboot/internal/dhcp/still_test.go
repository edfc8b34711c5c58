package dhcp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"
)

// stillWire is a wire on which every question is answered at once, in the kernel's buffer, while whoever asked stands still.
type stillWire struct {
	*net.UDPConn
	back    *net.UDPConn
	answers func(question []byte) [][]byte
}

func newStillWire(t *testing.T, answers func(question []byte) [][]byte) *stillWire {
	t.Helper()
	in, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), back.Close() })
	return &stillWire{in, back, answers}
}

func (w *stillWire) WriteTo(b []byte, _ net.Addr) (int, error) {
	for _, a := range w.answers(b) {
		if _, err := w.back.Write(a); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// longAgo is the clock of a process that read it and then stood still: every deadline is past by the time of the first look.
func longAgo() time.Time { return time.Unix(1, 0) }

func silence([]byte) [][]byte { return nil }

// An answer that the kernel holds counts, however late the process comes to look.
func TestAProbeThatStoodStillHearsItsAnswer(t *testing.T) {
	a, other := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	holds := func(q []byte) [][]byte { // behind what others say
		mine, theirs := append([]byte(nil), q...), append([]byte(nil), q...)
		copy(mine[28:], a.AsSlice())
		copy(theirs[28:], other.AsSlice())
		return [][]byte{theirs, {1}, mine}
	}
	if !probe(t.Context(), newStillWire(t, holds), ourHW, a, longAgo) {
		t.Error("an address that is held is free")
	}
	if probe(t.Context(), newStillWire(t, holds), ourHW, netip.MustParseAddr("192.0.2.12"), longAgo) {
		t.Error("an address that others answer beside is held")
	}
	if probe(t.Context(), newStillWire(t, silence), ourHW, a, longAgo) {
		t.Error("an address that nobody answers for is held")
	}
}

func TestAPingThatStoodStillHearsItsEcho(t *testing.T) {
	a, other := netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("198.51.100.11")
	from := func(src netip.Addr) func([]byte) [][]byte {
		return func(q []byte) [][]byte {
			ip := append([]byte{0x46, 12: 0, 23: 0}, q...) // with options
			copy(ip[12:], src.AsSlice())
			ip[24] = 0
			return [][]byte{{0x45}, {0x4f, 19: 0}, q, ip}
		}
	}
	if !ping(t.Context(), newStillWire(t, from(a)), a, 7, longAgo) {
		t.Error("an address that answers is free")
	}
	if ping(t.Context(), newStillWire(t, from(other)), a, 7, longAgo) || ping(t.Context(), newStillWire(t, silence), a, 7, longAgo) {
		t.Error("an address that nobody answers for is held")
	}
}

func TestALookForRivalsThatStoodStillFindsThem(t *testing.T) {
	offers := func(q []byte) [][]byte {
		return [][]byte{{0}, answerTo(t, q, func(m *dhcpv4.DHCPv4) {
			m.UpdateOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 3)))
			m.YourIPAddr = net.IPv4(192, 0, 2, 55)
		})}
	}
	look := func(answers func([]byte) [][]byte, ours ...netip.Addr) int {
		a := &Asker{newStillWire(t, answers), &net.Interface{Name: "eno1", HardwareAddr: ourHW}, longAgo}
		found, err := a.Ask(t.Context(), ours, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := look(offers); n != 1 {
		t.Errorf("%d rivals", n)
	}
	if n := look(offers, netip.MustParseAddr("192.0.2.3")); n != 0 {
		t.Errorf("%d rivals that are ourselves", n)
	}
	if n := look(silence); n != 0 {
		t.Errorf("%d rivals in silence", n)
	}
}

// The kernel's filter passes what clientPayload reads, and nothing else that is large enough.
func TestFilterOfAnswers(t *testing.T) {
	vm, err := bpf.NewVM(toClients)
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := question(ourHW, false)
	if err != nil {
		t.Fatal(err)
	}
	good := answerTo(t, q, func(*dhcpv4.DHCPv4) {})
	change := func(at int, to byte) []byte { b := append([]byte(nil), good...); b[at] = to; return b }
	for name, b := range map[string][]byte{
		"an answer": good, "a question": q, "TCP": change(ethernetHeader+9, 6), "a first fragment": change(ethernetHeader+6, 0x20),
		"a later fragment": change(ethernetHeader+7, 1), "not to be fragmented": change(ethernetHeader+6, 0x40), "another port": change(ethernetHeader+ipv4Header+3, 69),
	} {
		n, err := vm.Run(b)
		if _, reads := clientPayload(b); err != nil || (n > 0) != reads {
			t.Errorf("%s: %d octets pass, read: %v (%v)", name, n, reads, err)
		}
	}
}
