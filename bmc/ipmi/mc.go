package ipmi

import (
	"strconv"
	"strings"
)

// mc is what "mc info" says.
type mc struct {
	firmware  string
	maker     string // "" unknown
	makerID   string // IANA enterprise number, decimal, 20 bits; "" when not given
	productID string // decimal
}

// makers names the enterprise numbers of those who make BMCs, for an ipmitool without the registry file.
var makers = map[string]string{
	"2": "IBM", "11": "Hewlett-Packard", "42": "Sun Microsystems", "343": "Intel Corporation", "674": "Dell Inc.",
	"2011": "Huawei", "5771": "Cisco", "7154": "Quanta", "10368": "Fujitsu", "10876": "Supermicro", "15370": "Gigabyte",
	"19046": "Lenovo", "25506": "H3C", "47196": "Hewlett Packard Enterprise", "47488": "Supermicro",
}

// parseMC reads "mc info".
func parseMC(text string) mc {
	found, _ := fields(text, "Firmware Revision", "Manufacturer ID", "Manufacturer Name", "Product ID")
	id := enterprise(found["Manufacturer ID"])
	product, _, _ := strings.Cut(value(found["Product ID"]), " ")
	m := mc{firmware: value(found["Firmware Revision"]), maker: value(found["Manufacturer Name"]), makerID: id, productID: product}
	if m.maker == "" || strings.HasPrefix(m.maker, "Unknown") {
		m.maker = makers[id]
		if m.maker == "" && id != "" {
			m.maker = "IANA " + id
		}
	}
	return m
}

// enterprise gives a manufacturer's number as both releases of ipmitool would print it: an id has 20 bits, the four above
// them are reserved (IPMI 2.0, section 20.1), and 1.8.18 cuts them off where 1.8.19 prints what a BMC leaves in them. All
// zeros and all ones name nobody.
func enterprise(text string) string {
	digits, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseUint(digits, 10, 24)
	const bits = 1<<20 - 1
	if n &= bits; err != nil || n == 0 || n == bits {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
