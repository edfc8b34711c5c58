package inventory

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/u-root/u-root/pkg/ipmi"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// IPMI parameters and commands (IPMI 2.0, tables 23-4 and 20-x).
const (
	lanAddress  = 3
	lanMAC      = 5
	maxChannels = 11
	netFnApp    = 6
	cmdGUID     = 0x37 // Get System GUID
)

// bmcConn is what is asked of a BMC in band. *ipmi.IPMI is one.
type bmcConn interface {
	GetDeviceID() (*ipmi.DevID, error)
	GetLanConfig(channel byte, param byte) ([]byte, error)
	SendRecv(netfn ipmi.NetFn, cmd ipmi.Command, data []byte) ([]byte, error)
}

// bmcTime bounds all questions to a BMC: a stuck one answers each only by the driver's timeout of ten seconds.
const bmcTime = 30 * time.Second

// BMC asks the BMC over the host's own IPMI interface, if path (/dev/ipmi0) exists.
func BMC(path string) func(ctx context.Context) (*agentv1.BMCInfo, error) {
	return func(ctx context.Context) (*agentv1.BMCInfo, error) {
		if _, err := os.Stat(path); err != nil {
			return nil, nil
		}
		conn, err := ipmi.OpenPath(path)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", path, err)
		}
		ctx, cancel := context.WithTimeout(ctx, bmcTime)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the wait for an answer
		info, err := askBMC(conn)
		if stop() {
			_ = conn.Close()
		}
		return info, errors.Join(err, ctx.Err())
	}
}

// askBMC reads firmware version, GUID and the first LAN channel that has a MAC address. Every answer starts with a
// completion code.
func askBMC(c bmcConn) (*agentv1.BMCInfo, error) {
	id, err := c.GetDeviceID()
	if err != nil {
		return nil, fmt.Errorf("asking the BMC who it is: %w", err)
	}
	info := &agentv1.BMCInfo{Firmware: fmt.Sprintf("%d.%02x", id.FwRev1&0x7f, id.FwRev2)}
	if b, err := c.SendRecv(netFnApp, cmdGUID, nil); err == nil && len(b) >= 17 {
		info.GUID = guid([16]byte(b[1:17]))
	}
	for ch := byte(1); ch <= maxChannels; ch++ {
		b, err := c.GetLanConfig(ch, lanMAC)
		if err != nil || len(b) < 8 { // completion code, revision, six bytes
			continue
		}
		mac, err := app.MACFromBytes(b[2:8])
		if err != nil {
			continue
		}
		info.MAC = string(mac)
		if b, err := c.GetLanConfig(ch, lanAddress); err == nil && len(b) >= 6 && !net.IP(b[2:6]).IsUnspecified() {
			info.Address = net.IP(b[2:6]).String()
		}
		return info, nil
	}
	return info, nil
}

// guid spells a system GUID, which IPMI sends from the last byte to the first; one of zeros or ones is none.
func guid(b [16]byte) string {
	for i := range 8 {
		b[i], b[15-i] = b[15-i], b[i]
	}
	u, err := app.ParseUUID(hex.EncodeToString(b[:]))
	if err != nil {
		return ""
	}
	return string(u)
}
