package bmctest

import "slices"

// FRUText is the text of a FRU's fields.
type FRUText struct {
	ChassisPart, ChassisSerial                     string
	BoardMaker, BoardName, BoardSerial, BoardPart  string
	Maker, Name, Part, ProductVersion, Serial, Tag string
}

// DemoFRU is the FRU of an ordinary machine.
func DemoFRU() []byte {
	return FRU(FRUText{
		ChassisPart: "CH-1", ChassisSerial: "CHSN0001",
		BoardMaker: "ACME", BoardName: "Board 7", BoardSerial: "BDSN0001", BoardPart: "BP-1",
		Maker: "ACME", Name: "Server 9", Part: "PP-1", ProductVersion: "1.0", Serial: "SN0001", Tag: "TAG1",
	})
}

// FRU encodes a FRU of IPMI platform management, version 1, with a chassis, a board and a product area.
func FRU(t FRUText) []byte {
	chassis := fruArea([]byte{0x17}, t.ChassisPart, t.ChassisSerial)
	board := fruArea([]byte{25, 0x00, 0x10, 0xd0}, t.BoardMaker, t.BoardName, t.BoardSerial, t.BoardPart, "")
	product := fruArea([]byte{25}, t.Maker, t.Name, t.Part, t.ProductVersion, t.Serial, t.Tag, "")
	at := byte(1)
	header := []byte{1, 0, at, at + byte(len(chassis)/8), at + byte((len(chassis)+len(board))/8), 0, 0}
	out := slices.Concat(header, []byte{checksum(header)}, chassis, board, product)
	return append(out, make([]byte, max(0, 256-len(out)))...)
}

// fruArea encodes one area: version, length in units of 8 bytes, fixed fields, texts, end, padding, checksum.
func fruArea(fixed []byte, texts ...string) []byte {
	body := append([]byte{1, 0}, fixed...)
	for _, s := range texts {
		body = append(append(body, 0xc0|byte(len(s))), s...)
	}
	body = append(body, 0xc1)
	for len(body)%8 != 7 {
		body = append(body, 0)
	}
	body[1] = byte(len(body)/8 + 1)
	return append(body, checksum(body))
}

func checksum(p []byte) byte {
	var sum byte
	for _, b := range p {
		sum -= b
	}
	return sum
}

// sensorRecord encodes a full sensor record of a temperature whose raw value counts degrees.
func sensorRecord(id uint16, number byte, name string) []byte {
	b := make([]byte, 43)
	b[0], b[2], b[3], b[4] = 0x20, number, 7, 1
	b[5], b[6], b[7], b[8] = 0x7f, 0x68, 1, 1
	b[13], b[14], b[16], b[19] = 0x3f, 0x3f, 1, 1
	b[25], b[26], b[29] = 1, 42, 255
	b[42] = 0xc0 | byte(len(name))
	body := slices.Concat(b, []byte(name))
	return append([]byte{byte(id), byte(id >> 8), 0x51, 1, byte(len(body))}, body...)
}
