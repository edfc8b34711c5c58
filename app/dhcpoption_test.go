package app

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

func TestDHCPOptions(t *testing.T) {
	for text, want := range map[string]string{
		"26=uint16:9000": "2328", "150=ip:192.0.2.1,192.0.2.2": "c0000201c0000202", "150=ip: 192.0.2.1 192.0.2.2": "c0000201c0000202",
		"224=text:a b=c:d": "6120623d633a64", "224=hex:0a:0B 0c": "0a0b0c", "19=bool:true": "01", "19=uint8:0": "00", "2=uint32:0xffffb9b0": "ffffb9b0",
		"33=ip:198.51.100.1,192.0.2.9": "c6336401c0000209", "230=hex:" + strings.Repeat("61", 300): strings.Repeat("61", 300),
	} {
		var o DHCPOption
		if err := o.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		b, err := o.Encode()
		if err != nil || hex.EncodeToString(b) != want || o.Validate() != nil {
			t.Errorf("%s became %x, %v, %v", text, b, err, o.Validate())
		}
		raw, err := json.Marshal(o)
		var back DHCPOption
		if err != nil || json.Unmarshal(raw, &back) != nil || back != o {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
}

func TestDHCPOptionsThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "26", "26=9000", "300=uint8:1", "-1=uint8:1", "x=uint8:1", "26:uint16=9000", // no form
		"26=uint16:65536", "26=uint16:-1", "26=uint8:1", "26=uint32:9000", "26=text:9000", // MTU has 2 octets
		"19=bool:2", "224=float:1", "224=hex:0", "224=hex:zz", "224=hex:", "224=text:", "224=ip:", "224=ip:2001:db8::1", "150=hex:010203",
		"33=ip:192.0.2.1", "224=text:a\nb", "224=text:${net0/mac}", "230=hex:" + strings.Repeat("61", 511),
		// Ours, the protocol's, or with a field of their own.
		"0=uint8:1", "255=uint8:1", "1=ip:255.255.255.0", "3=ip:192.0.2.1", "6=ip:192.0.2.1", "43=hex:0601", "50=ip:192.0.2.1", "51=uint32:1", "53=uint8:5",
		"54=ip:192.0.2.1", "60=text:PXEClient", "61=hex:01", "66=text:x", "67=text:x", "82=hex:01", "93=uint16:7", "97=hex:00", "121=hex:00", "175=hex:00",
	} {
		var o DHCPOption
		err := o.UnmarshalText([]byte(text))
		if err == nil {
			err = o.Validate()
		}
		e, ok := AsError(err)
		if !ok || e.Field != "options" || len(e.Message) > 200 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzDHCPOption(f *testing.F) {
	f.Add("26=uint16:9000")
	f.Add("150=ip:192.0.2.1,192.0.2.2")
	f.Add("224=hex:0a:0b")
	f.Fuzz(func(t *testing.T, text string) {
		var o DHCPOption
		if o.UnmarshalText([]byte(text)) != nil || o.Validate() != nil {
			return
		}
		b, err := o.Encode()
		if err != nil || len(b) == 0 || len(b) > MaxDHCPOptionBytes {
			t.Fatalf("%q passed and gives %x, %v", text, b, err)
		}
		var back DHCPOption
		if err := back.UnmarshalText([]byte(o.String())); err != nil || back != o {
			t.Fatalf("%q came back as %v", o, back)
		}
	})
}
