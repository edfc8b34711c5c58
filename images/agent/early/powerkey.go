package early

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	evKey          = 1   // EV_KEY of linux/input-event-codes.h
	keyPower       = 116 // KEY_POWER
	inputEventSize = 24  // struct input_event with 64-bit time: two times of 8 bytes, type, code (2 each), value (4)
)

// isPowerPress tells whether an input event is the power key going down.
func isPowerPress(b []byte) bool {
	return len(b) == inputEventSize && binary.NativeEndian.Uint16(b[16:]) == evKey &&
		binary.NativeEndian.Uint16(b[18:]) == keyPower && int32(binary.NativeEndian.Uint32(b[20:])) == 1
}

// hasPowerKey reads a key bitmap as sysfs prints it: hexadecimal words of 64 bits, the highest first.
func hasPowerKey(bitmap string) bool {
	words := strings.Fields(bitmap)
	i := len(words) - 1 - keyPower/64
	if i < 0 {
		return false
	}
	w, err := strconv.ParseUint(words[i], 16, 64)
	return err == nil && w&(1<<(keyPower%64)) != 0
}

// watchPowerKey calls pressed for each press on an input device ("input/event0") that has the key, until it is gone or
// ctx ends. Other devices return at once.
func watchPowerKey(ctx context.Context, sys, dev, name string, pressed func()) {
	b, err := os.ReadFile(filepath.Join(sys, "class/input", filepath.Base(name), "device/capabilities/key"))
	if err != nil || !hasPowerKey(string(b)) {
		return
	}
	f, err := os.Open(filepath.Join(dev, name))
	if err != nil {
		return
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	buf := make([]byte, inputEventSize*64)
	for {
		n, err := f.Read(buf)
		if err != nil || n == 0 {
			return
		}
		for e := buf[:n]; len(e) >= inputEventSize; e = e[inputEventSize:] {
			if isPowerPress(e[:inputEventSize]) {
				pressed()
			}
		}
	}
}

// inputDevices lists the event devices that are there, as DevName of an uevent names them.
func inputDevices(dev string) []string {
	found, _ := filepath.Glob(filepath.Join(dev, "input/event*")) // the pattern is well-formed
	names := make([]string, 0, len(found))
	for _, p := range found {
		names = append(names, "input/"+filepath.Base(p))
	}
	return names
}
