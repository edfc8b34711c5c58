package lab

import (
	"fmt"
	"testing"

	"github.com/better-compute/bcd/bmc/virtual"
)

// screen is an appliance that takes console lines.
type screen struct {
	Site
	lines []string
}

func (s *screen) ConsoleLine(machine, text string) { s.lines = append(s.lines, machine+": "+text) }

func TestConsoleLinesReachTheApplianceOnceItIsUp(t *testing.T) {
	var c console
	c.line("bios-1", virtual.Line{Text: "before there is one"})
	s := &screen{}
	c.show(s)
	c.line("bios-1", virtual.Line{Text: "GRUB loading"})
	if got := fmt.Sprint(s.lines); got != "[bios-1: GRUB loading]" {
		t.Errorf("the appliance was told %s", got)
	}
	var none console
	none.show(struct{ Site }{}) // one that takes none
	none.line("bios-1", virtual.Line{Text: "x"})
}
