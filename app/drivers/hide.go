package drivers

import (
	"encoding/json"
	"regexp"
)

// bootKey is the key in the address of a file of one boot. Who has it is given what the machine is given.
var bootKey = regexp.MustCompile(`/boot/[A-Za-z0-9_-]{1,128}/`)

// hideKeys takes such keys out of arguments that are written down.
func hideKeys(args json.RawMessage) json.RawMessage {
	return bootKey.ReplaceAll(args, []byte("/boot/KEY/"))
}
