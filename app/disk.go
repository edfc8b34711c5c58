package app

import "strings"

// Is reports whether id names the disk of that serial number, WWN and kernel name: every one that id has must be the
// same, and the kernel name, which changes from boot to boot, counts only when id has nothing else. An empty id names none.
func (id DiskID) Is(serial, wwn, name string) bool {
	switch {
	case id.Serial == "" && id.WWN == "":
		return id.Name != "" && id.Name == name
	case id.Serial != "" && !SameSerial(id.Serial, serial):
		return false
	}
	return id.WWN == "" || SameWWN(id.WWN, wwn)
}

// SameSerial compares serial numbers of disks, which tools pad and write in either case. Placeholders are never the same.
func SameSerial(a, b string) bool {
	a, b = CleanSerial(a), CleanSerial(b)
	return a != "" && strings.EqualFold(a, b)
}

// SameWWN compares World Wide Names as tools spell them: with or without "0x", "naa.", "wwn-" or "eui." in front, in any
// case, and with or without the vendor extension that makes 32 digits of an NAA name's 16. Empty ones are never the same.
func SameWWN(a, b string) bool {
	a, b = bareWWN(a), bareWWN(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	if a == "" {
		return false
	}
	naa := b[0] == '5' || b[0] == '6'
	return a == b || naa && len(a) == 16 && len(b) == 32 && b[:16] == a
}

func bareWWN(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, p := range []string{"wwn-", "nvme-", "naa.", "eui.", "uuid.", "0x"} {
		s = strings.TrimPrefix(s, p)
	}
	return s
}
