package bootfile

import (
	"strings"
	"testing"
)

const base = "http://192.0.2.1:8080"

func pxe(arch ...Arch) Facts {
	return Facts{
		MAC: "00:00:5e:00:53:01", Archs: arch, VendorClass: "PXEClient:Arch:00007:UNDI:003016",
		Boot: BootRamdisk, HTTPBase: base,
	}
}

func with(f Facts, change func(*Facts)) Facts { change(&f); return f }

func TestDecideNamedSituations(t *testing.T) {
	scriptURL := base + "/boot/script?mac=00-00-5e-00-53-01"
	loaderURL := base + "/ipxe/snponly.efi"
	programURL := base + "/boot/k3y/boot.efi"
	userClass := func(s string) func(*Facts) { return func(f *Facts) { f.UserClass = []byte(s) } }
	httpClass := func(f *Facts) { f.VendorClass = "HTTPClient:Arch:00016:UNDI:003001" }
	full := "\x13\x01\x01\x18\x01\x01\x24\x01\x01" // an iPXE with HTTP, bzImage and EFI
	for _, c := range []struct {
		name  string
		facts Facts
		stage Stage
		file  string
		class string
	}{
		{"BIOS ROM", pxe(ArchBIOS), StageFirmware, LoaderBIOS, ""},
		{"BIOS ROM of the nineties that announces no architecture", with(pxe(), func(f *Facts) { f.VendorClass = "PXEClient" }), StageFirmware, LoaderBIOS, ""},
		{"architecture only in the vendor class", pxe(), StageFirmware, LoaderX64, ""},
		{"x64 UEFI", pxe(ArchX64), StageFirmware, LoaderX64, ""},
		{"x64 UEFI that calls itself EBC", pxe(ArchEBC), StageFirmware, LoaderX64, ""},
		{"list whose first entry nobody knows", pxe(0x1234, ArchX64), StageFirmware, LoaderX64, ""},
		{"no vendor class but option 93", with(pxe(ArchX64), func(f *Facts) { f.VendorClass = "" }), StageFirmware, LoaderX64, ""},
		{"32-bit UEFI", pxe(ArchX86), StageFirmware, "", ""},
		{"arm64 UEFI", pxe(ArchARM64), StageFirmware, "", ""},
		{"unknown architecture", pxe(0x1234), StageFirmware, "", ""},
		{"x64 HTTP Boot", with(pxe(ArchX64HTTP), httpClass), StageHTTP, loaderURL, "HTTPClient"},
		{"x64 HTTP Boot that announces plain x64", with(pxe(ArchX64), httpClass), StageHTTP, loaderURL, "HTTPClient"},
		{"PXE client with the HTTP architecture gets no URL", pxe(ArchX64HTTP), StageFirmware, LoaderX64, ""},
		{"x64 HTTP Boot of a machine with a program of its own", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.Program = programURL }), StageHTTP, programURL, "HTTPClient"},
		{"the same where only HTTP is allowed", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.Program, f.NoTFTP = programURL, true }), StageHTTP, programURL, "HTTPClient"},
		{"PXE of a machine with a program of its own gets no URL", with(pxe(ArchX64), func(f *Facts) { f.Program = programURL }), StageFirmware, LoaderX64, ""},
		{"idle machine, HTTP Boot", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.Boot = BootDisk }), StageHTTP, base + "/boot/disk.efi", "HTTPClient"},
		{"HTTP Boot of a CD image goes by iPXE", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.Boot = BootISO }), StageHTTP, loaderURL, "HTTPClient"},
		{"HTTP Boot while the site cannot tell", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.Boot = BootAsk }), StageHTTP, loaderURL, "HTTPClient"},
		{"PXE while the site cannot tell", with(pxe(ArchX64), func(f *Facts) { f.Boot = BootAsk }), StageFirmware, LoaderX64, ""},
		{"unknown machine, HTTP Boot", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.Boot = BootNone }), StageHTTP, "", "HTTPClient"},
		{"arm64 HTTP Boot of an idle machine", with(pxe(ArchARM64HTTP), func(f *Facts) { httpClass(f); f.Boot = BootDisk }), StageHTTP, "", "HTTPClient"},
		{"arm64 HTTP Boot of a machine with a program for x64", with(pxe(ArchARM64HTTP), func(f *Facts) { httpClass(f); f.Program = programURL }), StageHTTP, "", "HTTPClient"},
		{"arm64 HTTP Boot", with(pxe(ArchARM64HTTP), httpClass), StageHTTP, "", "HTTPClient"},
		{"BIOS HTTP Boot", with(pxe(ArchBIOSHTTP), httpClass), StageHTTP, "", "HTTPClient"},
		{"iPXE, bare text", with(pxe(ArchBIOS), userClass("iPXE")), StageIPXE, scriptURL, ""},
		{"iPXE, RFC 3004", with(pxe(ArchX64), userClass("\x04iPXE")), StageIPXE, scriptURL, ""},
		{"iPXE, second of two", with(pxe(ArchX64), userClass("\x03foo\x04iPXE")), StageIPXE, scriptURL, ""},
		{"iPXE, NUL at the end", with(pxe(ArchX64), userClass("iPXE\x00")), StageIPXE, scriptURL, ""},
		{"iPXE, RFC 3004 with NUL", with(pxe(ArchX64), userClass("\x05iPXE\x00")), StageIPXE, scriptURL, ""},
		{"another user class", with(pxe(ArchX64), userClass("foo")), StageFirmware, LoaderX64, ""},
		{"user class with a lying length", with(pxe(ArchX64), userClass("\xffiPXE")), StageFirmware, LoaderX64, ""},
		{"NIC's iPXE with all it needs", with(pxe(ArchBIOS), func(f *Facts) { f.UserClass, f.Encap = []byte("iPXE"), []byte(full) }), StageIPXE, scriptURL, ""},
		{"NIC's iPXE without HTTP", with(pxe(ArchBIOS), func(f *Facts) { f.UserClass, f.Encap = []byte("iPXE"), []byte("\x18\x01\x01") }), StageIPXE, LoaderBIOS, ""},
		{"the same, already chained", with(pxe(ArchBIOS), func(f *Facts) { f.UserClass, f.Encap, f.Chained = []byte("iPXE"), []byte("\x18\x01\x01"), true }), StageIPXE, scriptURL, ""},
		{"BIOS ROM where only HTTP is allowed", with(pxe(ArchBIOS), func(f *Facts) { f.NoTFTP = true }), StageFirmware, "", ""},
		{"x64 HTTP Boot where only HTTP is allowed", with(pxe(ArchX64HTTP), func(f *Facts) { httpClass(f); f.NoTFTP = true }), StageHTTP, loaderURL, "HTTPClient"},
		{"iPXE where only HTTP is allowed", with(pxe(ArchX64), func(f *Facts) { f.UserClass, f.NoTFTP = []byte("iPXE"), true }), StageIPXE, scriptURL, ""},
		{"weak iPXE where only HTTP is allowed", with(pxe(ArchBIOS), func(f *Facts) { f.UserClass, f.Encap, f.NoTFTP = []byte("iPXE"), []byte("\x18\x01\x01"), true }), StageIPXE, scriptURL, ""},
		{"arm64 iPXE", with(pxe(ArchARM64), userClass("iPXE")), StageIPXE, "", ""},
		{"idle machine, BIOS", with(pxe(ArchBIOS), func(f *Facts) { f.Boot = BootDisk }), StageFirmware, LoaderBIOS, ""},
		{"idle machine, iPXE", with(pxe(ArchX64), func(f *Facts) { f.Boot = BootDisk; f.UserClass = []byte("iPXE") }), StageIPXE, scriptURL, ""},
		{"unknown machine", with(pxe(ArchX64), func(f *Facts) { f.Boot = BootNone }), StageFirmware, "", ""},
		{"unknown machine, iPXE", with(pxe(ArchX64), func(f *Facts) { f.Boot = BootNone; f.UserClass = []byte("iPXE") }), StageIPXE, scriptURL, ""},
		{"an operating system", Facts{VendorClass: "udhcp 1.35.0", Boot: BootDisk}, StageOS, "", ""},
		{"an operating system without a vendor class", Facts{}, StageOS, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.facts)
			if d.Stage != c.stage || d.File != c.file || d.VendorClass != c.class {
				t.Fatalf("got stage %q file %q class %q, want %q %q %q (%s)", d.Stage, d.File, d.VendorClass, c.stage, c.file, c.class, d.Reason)
			}
			if d.Reason == "" {
				t.Error("a decision without a reason")
			}
		})
	}
}

func TestUUIDOfOption97(t *testing.T) {
	f := Facts{GUID: []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10")}
	if got := f.UUID(); got != "01020304-0506-0708-090a-0b0c0d0e0f10" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "\x00", "\x01\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", strings.Repeat("\xff", 17), "\x00" + strings.Repeat("\x00", 16)} {
		if got := (Facts{GUID: []byte(bad)}).UUID(); got != "" {
			t.Errorf("%x gave %q", bad, got)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{0, 7}, "PXEClient:Arch:00007", []byte("\x04iPXE"), []byte("\x13\x01\x01"), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"), true)
	f.Add([]byte{0}, "HTTPClient", []byte("\xff"), []byte("\x13\xff"), []byte(nil), false)
	f.Fuzz(func(t *testing.T, archs []byte, class string, user, encap, guid []byte, noTFTP bool) {
		facts := Facts{Archs: ArchsFromOption(archs), VendorClass: class, UserClass: user, Encap: encap, GUID: guid, NoTFTP: noTFTP, Boot: BootRamdisk, HTTPBase: base}
		if u := facts.UUID(); u != "" && (len(u) != 36 || len(guid) != 17) {
			t.Fatalf("%x is the UUID %q", guid, u)
		}
		d := Decide(facts)
		if noTFTP && d.File != "" && !strings.HasPrefix(d.File, base+"/") {
			t.Fatalf("%q where only HTTP is allowed", d.File)
		}
		if d.Stage == StageFirmware && strings.Contains(d.File, "://") {
			t.Fatalf("a PXE client was given %q", d.File)
		}
		if d.Reason == "" {
			t.Fatal("no reason")
		}
	})
}
