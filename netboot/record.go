package netboot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
	"github.com/better-compute/bcd/netboot/internal/dhcp"
	"github.com/better-compute/bcd/netboot/internal/httpboot"
	"github.com/better-compute/bcd/netboot/internal/tftp"
)

// transferData is what an event of a transfer holds.
type transferData struct {
	MAC     app.MAC    `json:"mac,omitempty"`
	Address netip.Addr `json:"address,omitzero"`
	Method  string     `json:"method,omitempty"`
	Name    string     `json:"name"`
	Status  int        `json:"status,omitempty"`
	Bytes   int64      `json:"bytes"`
	Size    int64      `json:"size,omitempty"`
	Millis  int64      `json:"millis"`
	Rate    int64      `json:"bytesPerSecond,omitempty"`
	Block   int        `json:"blockSize,omitempty"` // of TFTP, in bytes
	Retries int        `json:"retries,omitempty"`   // times that a packet of TFTP was sent again
	Agent   string     `json:"userAgent,omitempty"`
	Error   string     `json:"error,omitempty"`
}

func (s *Server) record(kind, level, machine, message string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		b = nil
	}
	s.cfg.Record(app.Event{Time: s.cfg.Clock().UTC(), Kind: kind, Level: level, MachineID: machine, Message: message, Data: b})
}

// recordDHCP passes an exchange on, and reports netbooting machines that are nobody's.
func (s *Server) recordDHCP(x dhcp.Exchange) {
	machine := s.clients.machineOf(x.MAC)
	if machine == "" && !s.strangers.allow(s.cfg.Clock()) {
		return
	}
	x.File = httpboot.HideKey(x.File)
	s.record(x.Kind, x.Level, machine, x.Message, x)
	if machine != "" || x.Stage == bootfile.StageOS || !sighting(x) || !s.discovers(x.Subnet) {
		return
	}
	now := s.cfg.Clock().UTC()
	d := app.Discovery{MAC: x.MAC, UUID: x.UUID, Arch: x.Arch, SubnetID: x.Subnet, Vendor: x.Vendor, Count: 1, First: now, Last: now}
	if x.Addr.IsValid() {
		d.Address = x.Addr.String()
	}
	s.cfg.Port.Discovered(context.Background(), d)
}

// sighting reports the one exchange of each boot that counts for a discovery.
func sighting(x dhcp.Exchange) bool {
	switch x.Kind {
	case "dhcp.offer", "dhcp.heard":
		return true
	case "dhcp.proxy":
		return x.Request == "DISCOVER" // port 4011 may follow
	}
	return false
}

func (s *Server) discovers(subnet string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.subnets, func(sub app.Subnet) bool { return sub.ID == subnet && sub.Discover })
}

func (s *Server) recordTFTP(t tftp.Transfer) {
	mac, _ := s.dhcp.ClientAt(t.Remote)
	d := transferData{
		MAC: mac, Address: t.Remote, Name: t.Name, Bytes: t.Bytes, Size: t.Size, Block: t.Block, Retries: t.Retries,
		Millis: t.Took.Milliseconds(), Rate: rate(t.Bytes, t.Took),
	}
	level, message := "info", fmt.Sprintf("%q was loaded by TFTP.", t.Name)
	if t.Err != nil {
		level, message, d.Error = "warn", fmt.Sprintf("Loading %q by TFTP failed after %d bytes.", t.Name, t.Bytes), t.Err.Error()
	}
	if t.Err == nil && mac != "" {
		s.noteLoader(mac, path.Base(t.Name))
	}
	s.record("tftp.get", level, s.clients.machineOf(mac), message, d)
}

func (s *Server) recordHTTP(t httpboot.Transfer) {
	mac, _ := s.dhcp.ClientAt(t.Remote)
	d := transferData{
		MAC: mac, Address: t.Remote, Method: t.Method, Name: t.Path, Status: t.Status, Bytes: t.Bytes, Size: t.Size,
		Millis: t.Took.Milliseconds(), Rate: rate(t.Bytes, t.Took), Agent: t.Agent,
	}
	kind, level, message := "http.get", "info", fmt.Sprintf("%s %q was answered with %d.", t.Method, t.Path, t.Status)
	switch {
	case t.Begun:
		kind, message = "http.begin", fmt.Sprintf("Loading %q over HTTP began.", t.Path)
	case t.Status >= 400:
		level = "warn"
	case t.Method == http.MethodGet && t.Status == http.StatusOK && t.Bytes < t.Size:
		level, message, d.Error = "warn", fmt.Sprintf("Loading %q over HTTP was broken off after %d of %d bytes.", t.Path, t.Bytes, t.Size), "the client broke it off"
	case mac != "":
		s.noteLoader(mac, path.Base(t.Path))
	}
	machine := t.MachineID // a BMC that fetches a CD has no address of ours
	if machine == "" {
		machine = s.clients.machineOf(mac)
	}
	s.record(kind, level, machine, message, d)
}

func (s *Server) noteLoader(mac app.MAC, name string) {
	if slices.Contains(bootfile.Loaders(), name) {
		s.clients.loaded(mac)
	}
}

func (s *Server) recordScript(c Client, r httpboot.ScriptRequest, t Target, message string, err error) {
	data := struct {
		MACs    []app.MAC  `json:"macs,omitempty"`
		UUID    app.UUID   `json:"uuid,omitempty"`
		Address netip.Addr `json:"address,omitzero"`
		Kind    Kind       `json:"kind,omitempty"`
		Error   string     `json:"error,omitempty"`
	}{c.MACs, c.UUID, r.Remote, t.Kind, ""}
	level := "info"
	if err != nil {
		level, data.Error = "error", err.Error()
	}
	s.record("ipxe.script", level, t.MachineID, message, data)
}

func (s *Server) recordRA(iface string) func(app.MAC) {
	return func(mac app.MAC) {
		s.record("ra.sent", "info", s.clients.machineOf(mac), "The machine was told that no IPv6 router is here, so that it does not wait for one.",
			struct {
				MAC       app.MAC `json:"mac"`
				Interface string  `json:"interface"`
			}{mac, iface})
	}
}

func rate(bytes int64, took time.Duration) int64 {
	if took <= 0 {
		return 0
	}
	return int64(float64(bytes) / took.Seconds())
}
