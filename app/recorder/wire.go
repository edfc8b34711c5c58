package recorder

import (
	"encoding/json"
	"strings"

	"github.com/better-compute/bcd/app"
)

// wire is what the data of records of the network, BMC and agent holds, as far as it tells of the boot.
type wire struct {
	MAC       app.MAC   `json:"mac"`
	MACs      []app.MAC `json:"macs"`
	Address   string    `json:"address"`
	Subnet    string    `json:"subnet"`
	Request   string    `json:"request"`
	Stage     string    `json:"stage"`
	Arch      string    `json:"arch"`
	File      string    `json:"file"`
	Reason    string    `json:"reason"`
	Server    string    `json:"server"`
	Interface string    `json:"interface"`
	Name      string    `json:"name"`
	Method    string    `json:"method"`
	Status    int       `json:"status"`
	Bytes     int64     `json:"bytes"`
	Size      int64     `json:"size"`
	Millis    int64     `json:"millis"`
	Error     string    `json:"error"`
	Kind      string    `json:"kind"`
	Retries   int64     `json:"retries"`
	BlockSize int       `json:"blockSize"`
	Action    string    `json:"action"`
	Phase     string    `json:"phase"`
	Was       string    `json:"was"`
	WayOut    string    `json:"wayOut"`
}

// port is the address of the port that a record tells of.
func (w *wire) port() app.MAC {
	m := w.MAC
	if m == "" && len(w.MACs) > 0 {
		m = w.MACs[0]
	}
	if got, err := app.ParseMAC(string(m)); err == nil {
		return got
	}
	return ""
}

// networkKind reports the kinds whose data names a port.
func networkKind(kind string) bool {
	family, _, _ := strings.Cut(kind, ".")
	switch family {
	case "dhcp", "tftp", "http", "ipxe", "ra":
		return true
	}
	return false
}

// portOf reads the port from a record's data; "" when it names none.
func portOf(data []byte) app.MAC {
	var w wire
	if json.Unmarshal(data, &w) != nil {
		return ""
	}
	return w.port()
}
