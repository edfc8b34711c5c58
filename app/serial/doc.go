// Package serial holds the serial consoles of machines that people have open: one of each machine at a time, since a BMC has
// one; each opening, taking over and end on the machine's timeline with who did it; and each line that the machine prints.
package serial
