package ipmi

import (
	"encoding/hex"
	"regexp"
	"strings"
)

// guidRE matches a GUID with dashes, or its 32 digits alone as ipmitool 1.8.19 prints it when it cannot tell the encoding.
var guidRE = regexp.MustCompile(`^(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})$`)

// noGUIDs are what boards hold that were given none.
var noGUIDs = map[string]bool{
	"00000000-0000-0000-0000-000000000000": true, "ffffffff-ffff-ffff-ffff-ffffffffffff": true,
	"03000200-0400-0500-0006-000700080009": true, "00020003-0004-0005-0006-000700080009": true,
	"00010203-0405-0607-0809-0a0b0c0d0e0f": true, "03020100-0504-0706-0809-0a0b0c0d0e0f": true,
}

// parseGUID reads "mc guid" and gives the GUID in lower case with dashes, its octets in the order that the BMC prints
// them, or "" when there is none. Which order that is no BMC says reliably; whoever compares must try them all.
func parseGUID(text string) string {
	found, _ := fields(text, "System GUID")
	s := strings.ToLower(strings.Trim(found["System GUID"], "{} "))
	if !guidRE.MatchString(s) {
		return ""
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil {
		return ""
	}
	h := hex.EncodeToString(b)
	guid := strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
	if noGUIDs[guid] {
		return ""
	}
	return guid
}
