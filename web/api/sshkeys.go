package api

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/better-compute/bcd/app"
)

const maxKeys = 64

// validKeys checks lines of authorized_keys without options: type, base64 of a blob that names the same type, comment.
func validKeys(field string, keys []string) error {
	if len(keys) > maxKeys {
		return app.Invalid(field, "lists more than %d keys", maxKeys)
	}
	for i, k := range keys {
		if err := app.ValidLine(field, k, 16<<10); err != nil {
			return err
		}
		if !publicKey(k) {
			return app.Invalid(field, "key %d is no SSH public key", i+1).Do("paste the line of the .pub file, such as \"ssh-ed25519 AAAA… name\"")
		}
	}
	return nil
}

func publicKey(line string) bool {
	f := strings.Fields(line)
	if len(f) < 2 {
		return false
	}
	blob, err := base64.StdEncoding.DecodeString(f[1])
	if err != nil || len(blob) < 4 {
		return false
	}
	n := binary.BigEndian.Uint32(blob)
	return uint64(n)+4 <= uint64(len(blob)) && string(blob[4:4+n]) == f[0]
}
