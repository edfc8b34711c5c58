package ipmi

import (
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// fruKeys are the fields of a FRU that are read. Dates are not: every version of ipmitool writes them another way.
var fruKeys = []string{
	"Product Manufacturer", "Product Name", "Product Part Number", "Product Serial",
	"Board Mfg", "Board Product", "Board Part Number", "Board Serial", "Chassis Serial",
}

// fru is what "fru print 0" says.
type fru struct {
	text  map[string]string
	again []string // keys that came twice
}

// parseFRU reads the builtin FRU. In the output of a bare "fru print" that is the first one.
func parseFRU(text string) fru {
	const header = "FRU Device Description :"
	if i := strings.Index(text, header); i >= 0 {
		text = text[i+len(header):]
		if next := strings.Index(text, "\n"+header); next >= 0 {
			text = text[:next]
		}
	}
	found, again := fields(text, fruKeys...)
	return fru{text: found, again: again}
}

func (f fru) empty() bool { return len(f.text) == 0 }

func (f fru) manufacturer() string { return first(f.text["Product Manufacturer"], f.text["Board Mfg"]) }

// model falls back to the part number: boards of Supermicro have "NONE" or a blank for the other two.
func (f fru) model() string {
	return first(f.text["Product Name"], f.text["Board Product"], f.text["Product Part Number"], f.text["Board Part Number"])
}

func (f fru) serial() string {
	return first(f.text["Product Serial"], f.text["Board Serial"], f.text["Chassis Serial"])
}

func (f fru) board() driver.Board {
	return driver.Board{
		Manufacturer: value(f.text["Board Mfg"]), Product: value(f.text["Board Product"]), Serial: value(f.text["Board Serial"]),
	}
}
