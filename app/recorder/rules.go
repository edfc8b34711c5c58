package recorder

import (
	"fmt"
	"path"
	"strings"
	"time"
)

func powerFailed(f *Facts, now time.Time) *Verdict {
	if f.Failed == "" {
		return nil
	}
	return bad(CodePowerFailed, fmt.Sprintf("The BMC was asked %s to power it on, and it is not on: %s", ago(f.Began, now), f.Failed),
		"look at the BMC's own page: power supplies, interlocks, a fault in its log; then retry")
}

func alarmed(f *Facts, now time.Time) *Verdict {
	if f.Alarm == "" {
		return nil
	}
	return bad(CodeTokenReused, f.opening(now)+"; another machine called in its place: "+f.Alarm,
		"check that no other machine uses this one's address on the provisioning network, then retry")
}

// agentUp is the end of a boot into the ramdisk.
func agentUp(f *Facts, now time.Time) *Verdict {
	if f.Agent.IsZero() {
		return nil
	}
	took := secs(f.Agent.Sub(f.Began))
	if boot := f.bootPort(); boot != "" && f.AgentMAC != "" && boot != f.AgentMAC {
		return warn(CodeOtherPort, fmt.Sprintf("The ramdisk's agent is up %d s after power-on, at %s on port %s, though the machine booted from port %s.", took, f.AgentAddr, f.AgentMAC, boot),
			"both ports are on the provisioning network: unplug one, or give the installed system its addresses by MAC")
	}
	return &Verdict{Code: CodeWell, Level: LevelOK, Sentence: fmt.Sprintf("All well: the ramdisk's agent called %d s after the machine was started.", took)}
}

// asked is a machine that waits for a person's word.
func asked(f *Facts, now time.Time) *Verdict {
	if f.Question == "" {
		return nil
	}
	return bad(CodeQuestion, f.opening(now)+"; "+f.Question+".", f.Answer)
}

// kernelLoaded is between the ramdisk's last byte and its agent's first call.
func kernelLoaded(f *Facts, now time.Time) *Verdict {
	if !f.Kernel.ok() {
		return nil
	}
	switch {
	case f.Initramfs.At.Before(f.Kernel.At) && now.Sub(f.Kernel.At) < patienceKernel:
		return loading("The kernel was loaded %s; the ramdisk is next.", ago(f.Kernel.At, now))
	case f.Initramfs.At.Before(f.Kernel.At):
		return warn(CodeNoKernel, fmt.Sprintf("The kernel was loaded %s, and the ramdisk was not loaded whole since.", ago(f.Kernel.At, now)), slowWire)
	case f.Initramfs.Err != "":
		return brokenOff(f, f.Initramfs, now)
	}
	loaded, boot := f.Initramfs.At, f.bootPort()
	what, wayOut := "Kernel and ramdisk were", "look at the console: a driver that wants firmware, a port without link, a panic; console and kernel arguments are set on the hardware profile"
	if f.whole() {
		what = "Its boot program was"
		wayOut = "look at the console: firmware with Secure Boot on refuses a program that is not signed, so turn it off in the setup; else " + strings.TrimPrefix(wayOut, "look at the console: ")
	}
	if line := f.panicked(); line != "" {
		v := bad(CodeNoAgent, fmt.Sprintf("Kernel and ramdisk were loaded %s, and the kernel stopped: %s", ago(loaded, now), line), "console and kernel arguments are set on the hardware profile; a ramdisk for other hardware is built with bcd ramdisk build")
		v.Console = f.Tail
		return v
	}
	if now.Sub(loaded) < patienceAgent {
		return loading("%s loaded %s; the ramdisk is starting.", what, ago(loaded, now))
	}
	for _, p := range f.Ports {
		if p.MAC != boot && p.Stage == "os" && p.Asked.After(loaded) {
			return warn(CodeOtherPort,
				fmt.Sprintf("The kernel was loaded %s from port %s; the ramdisk now asks for an address on port %s, and its agent has not called.", ago(loaded, now), boot, p.MAC),
				"check the link and VLAN of the port it booted from, and that the other port reaches this appliance; then retry")
		}
	}
	again := ""
	if f.seen.After(loaded) {
		again = "; the machine started over " + ago(f.seen, now)
	}
	v := warn(CodeNoAgent, fmt.Sprintf("%s loaded %s, and the agent has not called%s%s.", what, ago(loaded, now), again, f.lastLine(loaded, now)), wayOut)
	v.Console = f.Tail
	return v
}

// whole reports that all came in one file, without a loader.
func (f *Facts) whole() bool {
	return f.Names.Whole != "" && path.Base(f.Kernel.Name) == f.Names.Whole
}

// slowWire is the way out of a boot whose files do not come.
const slowWire = "iPXE shows why on the screen: a memory error wants a newer iPXE, a timeout a look at the switch port; a slow wire shows in the transfers below"

// lastLine is a part of a sentence: what the console said last, and when.
func (f *Facts) lastLine(since, now time.Time) string {
	switch {
	case len(f.Tail) == 0:
		return ""
	case f.Printed.Before(since):
		return "; its console has printed nothing since"
	}
	return fmt.Sprintf("; its console last said, %s: %s", ago(f.Printed, now), f.Tail[len(f.Tail)-1])
}

// panicked is the line of the console by which a kernel ended.
func (f *Facts) panicked() string {
	for _, l := range f.Tail {
		if strings.Contains(l, "Kernel panic") {
			return l
		}
	}
	return ""
}

func kernelBroken(f *Facts, now time.Time) *Verdict {
	if f.Kernel.At.IsZero() || f.Kernel.ok() || f.Script.After(f.Kernel.At) || f.HTTPAsked.After(f.Kernel.At) {
		return nil
	}
	return brokenOff(f, f.Kernel, now)
}

// brokenOff tells of a transfer that did not end well.
func brokenOff(f *Facts, l Load, now time.Time) *Verdict {
	if l.Status == 404 {
		return bad(CodeNotHere, fmt.Sprintf("It asked %s for %q, which is not here.", ago(l.At, now), l.Name), "look at Health: the ramdisk may be missing from this build, or the boot is over; then retry")
	}
	if l.Proto == "TFTP" {
		return tftpStall(f, l, now)
	}
	part := size(l.Bytes)
	if l.Size > 0 {
		part += " of " + size(l.Size)
	}
	return bad(CodeBrokenOff, fmt.Sprintf("Loading %q over HTTP ended %s after %s in %d s: %s.", l.Name, ago(l.At, now), part, secs(l.Took), l.Err),
		"check the cable and the switch port for errors, and that no firewall ends long connections; then retry")
}

func tftpStall(f *Facts, l Load, now time.Time) *Verdict {
	how := fmt.Sprintf("%s in %d s", size(l.Bytes), secs(l.Took))
	if l.BlockSize > 0 {
		how += fmt.Sprintf(", blocks of %d bytes", l.BlockSize)
	}
	if l.Resent > 0 {
		how += fmt.Sprintf(", %d datagrams sent again", l.Resent)
	}
	if l.Tries > 1 {
		how += fmt.Sprintf(", try %d", l.Tries)
	}
	return bad(CodeTFTPStall, fmt.Sprintf("Loading %q by TFTP stalled %s after %s: %s.", l.Name, ago(l.At, now), how, l.Err),
		"a path that drops or fragments large datagrams: lower the TFTP block size of the subnet (512 passes every path, 1428 most tunnels), and let UDP through any firewall between, not port 69 alone")
}

// scriptGiven is between iPXE's script and the kernel.
func scriptGiven(f *Facts, now time.Time) *Verdict {
	if f.Script.IsZero() || f.Loader.At.After(f.Script) && f.Loader.At.Sub(f.Script) > patienceScript {
		return nil
	}
	switch {
	case f.ScriptErr != "":
		return bad(CodeScriptWaits, fmt.Sprintf("It asked for its script %s and was told to wait: %s.", ago(f.Script, now), f.ScriptErr), "it asks again by itself; if it goes on, look at the appliance's log")
	case f.ScriptFor != "ramdisk":
		return bad(CodeToDisk, fmt.Sprintf("It asked for its script %s and was sent to its disk: no permission to load the ramdisk was there.", ago(f.Script, now)), "retry the verb: it gives the permission before it powers the machine on")
	}
	if now.Sub(f.Script) < patienceKernel {
		return loading("Its script was handed out %s; the kernel is next.", ago(f.Script, now))
	}
	return warn(CodeNoKernel, fmt.Sprintf("Its script was handed out %s, and no kernel was loaded whole since.", ago(f.Script, now)), slowWire)
}

// loaderLoaded is between the loader and its script.
func loaderLoaded(f *Facts, now time.Time) *Verdict {
	if !f.Loader.ok() {
		return nil
	}
	again := ""
	if f.Loader.Tries > 1 {
		again = fmt.Sprintf(", for the %d. time", f.Loader.Tries)
	}
	hint := "iPXE has not even asked for an address: its driver may not serve this port, or the switch port blocks after each link change: make it an STP edge port (portfast) and turn LACP fallback on"
	for _, p := range f.Ports {
		if p.Stage == "ipxe" && p.Asked.After(f.Loader.At) {
			hint = "iPXE has asked for an address and not for the script: check that nothing between drops HTTP to the boot port, and that no other DHCP server answered it"
			if f.Rival != "" {
				hint += ": " + f.Rival + " was heard"
			}
		}
	}
	if now.Sub(f.Loader.At) < patienceScript {
		return loading("The loader %q was loaded %s%s; its script is next.", f.Loader.Name, ago(f.Loader.At, now), again)
	}
	return warn(CodeNoScript, fmt.Sprintf("The loader %q was loaded %s%s, and it has not asked for its script.", f.Loader.Name, ago(f.Loader.At, now), again), hint)
}

func loaderBroken(f *Facts, now time.Time) *Verdict {
	if !f.Loader.At.IsZero() && !f.HTTPAsked.After(f.Loader.At) {
		return brokenOff(f, f.Loader, now)
	}
	if !f.Missing.At.IsZero() {
		return bad(CodeNotHere, fmt.Sprintf("It asked %s for %q, which is not here.", ago(f.Missing.At, now), f.Missing.Name),
			"another DHCP server or a fixed entry in its firmware names that file: remove it there")
	}
	return nil
}

// httpRefused is firmware that was given an http:// address and does not go there. Dell's says UEFI0417 in its log: it wants
// https unless "HTTP Device TLS" is off.
func httpRefused(f *Facts, now time.Time) *Verdict {
	const wayOut = "firmware that refuses plain HTTP (Dell: UEFI0417) has a setting for it: turn the TLS requirement of HTTP boot off, or set the boot mode to UEFI PXE, which loads by TFTP"
	if !f.HTTPRefused.IsZero() && f.HTTPRefused.After(f.Began) {
		return bad(CodeHTTPRefused, "Its firmware refused "+ago(f.HTTPRefused, now)+" to boot over plain HTTP (UEFI0417).", wayOut)
	}
	for _, p := range f.Ports {
		if p.Stage == "http" && strings.HasPrefix(p.File, "http://") && !p.Acked.IsZero() {
			if f.HTTPAsked.After(p.Acked) {
				return f.loadingWhole(now)
			}
			if now.Sub(p.Acked) < patienceLoad {
				return loading("Its firmware was told %s to boot from %s.", ago(p.Acked, now), p.File)
			}
			return warn(CodeHTTPRefused, fmt.Sprintf("Its firmware was told %s to boot from %s, and asked for nothing there.", ago(p.Acked, now), p.File), wayOut)
		}
	}
	return nil
}

// loadingWhole is between the first request of UEFI HTTP Boot and the program's last byte.
func (f *Facts) loadingWhole(now time.Time) *Verdict {
	if now.Sub(f.HTTPAsked) < patienceKernel {
		return loading("Its firmware asked %s for its boot program over HTTP, and is loading it.", ago(f.HTTPAsked, now))
	}
	return warn(CodeBrokenOff, fmt.Sprintf("Its firmware asked %s for its boot program over HTTP, and has not loaded it whole.", ago(f.HTTPAsked, now)),
		"look at its console: firmware with little memory for HTTP boot gives up on large programs; set the boot mode to UEFI PXE then; else check the cable and the switch port for errors")
}

// noBootFile is a client that nothing can be done for.
func noBootFile(f *Facts, now time.Time) *Verdict {
	for _, p := range f.Ports {
		if p.wrongArch() {
			arch := p.Arch
			if arch == "" {
				arch = "unknown"
			}
			return bad(CodeWrongArch, fmt.Sprintf("It asked %s as architecture %s, and was told no boot file: %s.", ago(p.Asked, now), arch, p.Reason),
				"this build boots BIOS and x64 machines: check the boot mode in the firmware's setup (UEFI x64 or legacy)")
		}
		if !p.Booted || p.File != "" || p.Offered.IsZero() && p.Acked.IsZero() {
			continue
		}
		return bad(CodeNoBootFile, fmt.Sprintf("It asked %s on port %s and was told no boot file: %s.", ago(p.Asked, now), p.MAC, p.Reason), "retry the verb; if it stays so, look at the network page")
	}
	return nil
}

// addressTaken is between the address and the first file.
func addressTaken(f *Facts, now time.Time) *Verdict {
	for _, p := range f.Ports {
		if p.Booted && !p.Acked.IsZero() {
			took := "took the address " + p.Address
			if p.Address == "" {
				took = "has its address from another server"
			}
			if now.Sub(p.Acked) < patienceLoad {
				return loading("It %s, and was told %s to load %q.", took, ago(p.Acked, now), p.File)
			}
			return warn(CodeNoLoader, fmt.Sprintf("It %s, was told %s to load %q, and has asked for no file.", took, ago(p.Acked, now), p.File),
				"check that UDP port 69 and the ports after it pass between machine and appliance, and that the address is in the right VLAN")
		}
	}
	return nil
}

func offered(f *Facts, now time.Time) *Verdict {
	if f.Refused != "" {
		return bad(CodeNoOffer, "It asked for an address and got none: "+f.Refused, "look at the network page: pool, reservations, other machines with this address")
	}
	for _, p := range f.Ports {
		if !p.Booted || p.Offered.IsZero() {
			continue
		}
		if p.Address == "" { // we are the proxy
			if now.Sub(p.Offered) < patienceLoad {
				return loading("It was told %s to load %q, beside the address that another server gives.", ago(p.Offered, now), p.File)
			}
			return warn(CodeNotTaken, fmt.Sprintf("It was told %s to load %q, beside the address that another server gives, and has asked for no file.", ago(p.Offered, now), p.File),
				"some firmware ignores such proxy offers (known of HPE Gen9 and Dell T130/T430 in UEFI mode): turn the other DHCP server off and set the subnet's mode to full, or let that server name the boot file")
		}
		if now.Sub(p.Offered) < patienceTake && !f.RivalTook {
			return loading("It was offered %s %s.", p.Address, ago(p.Offered, now))
		}
		s, way := fmt.Sprintf("It was offered %s %s and has not taken it", p.Address, ago(p.Offered, now)), "another DHCP server may have been faster, or the answer does not reach it: look for rivals on the network page, and at the VLAN and relay"
		switch {
		case f.RivalTook:
			s += ": it took the offer of " + f.Rival
		case f.Rival != "":
			s += ": " + f.Rival + " answers DHCP there too"
		}
		if f.Rival != "" {
			way = "turn the DHCP server " + f.Rival + " off on this network, let it ignore this machine, or set the subnet's mode to proxy"
		}
		return warn(CodeNotTaken, s+".", way)
	}
	return nil
}

// unanswered is a machine that asks where nobody may answer.
func unanswered(f *Facts, now time.Time) *Verdict {
	switch {
	case !f.Exhausted.IsZero():
		return bad(CodePoolExhausted, "It asked "+ago(f.Exhausted, now)+" and there was no address left for it.", "enlarge the pool of the subnet, or remove leases of machines that are gone")
	case f.ListenOnly != "":
		return bad(CodeListenOnly, fmt.Sprintf("It asked %s on the subnet %s, which is listened to only.", ago(f.Asked, now), f.ListenOnly), "set the mode of that subnet to full or proxy")
	case f.Asked.IsZero():
		return nil
	}
	if now.Sub(f.Asked) < patienceTake {
		return loading("It asked for an address %s.", ago(f.Asked, now))
	}
	return warn(CodeNoOffer, "It asked for an address "+ago(f.Asked, now)+" and was offered none.", "look at the network page: is the port it asks on in a subnet that is turned on?")
}

// silent is a machine of which the network has heard nothing.
func silent(f *Facts, now time.Time) *Verdict {
	if now.Sub(f.Began) < startingFor {
		return &Verdict{Code: CodeStarting, Level: LevelWait, Sentence: f.opening(now) + "; its firmware is starting."}
	}
	patience, usual := patienceAsk, ""
	if f.Usual > 0 {
		patience, usual = max(time.Minute, 2*f.Usual), fmt.Sprintf("; last time it took %d s", secs(f.Usual))
	}
	v := warn(CodeNoDiscover, f.opening(now)+", no DISCOVER"+usual+".",
		"check the cable and its link light, that the switch port forwards at once (STP edge port), and that network boot is first in the boot order; large servers take minutes")
	if now.Sub(f.Began) < patience {
		v.Level = LevelWait
	}
	if f.Printed.After(f.Began) {
		v.Console = f.Tail
	}
	return v
}

// systemUp is the end of a boot from the disk.
func systemUp(f *Facts, now time.Time) *Verdict {
	switch {
	case !f.Home.IsZero():
		return &Verdict{Code: CodeWell, Level: LevelOK, Sentence: fmt.Sprintf("All well: the installed system called %d s after the machine was started.", secs(f.Home.Sub(f.Began)))}
	case !f.Agent.IsZero():
		return agentUp(f, now)
	case !f.Alive.IsZero():
		if now.Sub(f.Alive) < patienceSystem {
			return &Verdict{Code: CodeSystemAlive, Level: LevelWait, Sentence: "The installed system asked for an address " + ago(f.Alive, now) + ": it lives, and has not called yet."}
		}
		return warn(CodeSystemAlive, fmt.Sprintf("The installed system asked for an address %s: it lives, and has never called.", ago(f.Alive, now)),
			"log in to it: cloud-init's log says why it does not reach the appliance")
	}
	return nil
}

// asksNetwork is a machine that netboots though nobody wants it to.
func asksNetwork(f *Facts, now time.Time) *Verdict {
	if f.Asked.IsZero() || f.For != WantDisk {
		return nil
	}
	s := fmt.Sprintf("%s, it asked the network %s though it should boot its disk", f.opening(now), ago(f.Asked, now))
	if !f.Script.IsZero() {
		s += "; it was sent on to its disk " + ago(f.Script, now)
	}
	return warn(CodeNotDisk, s+".", "put its disk first in the firmware's boot order; if it is first, the firmware found nothing to boot on it")
}

func noSystem(f *Facts, now time.Time) *Verdict {
	if now.Sub(f.Began) < startingFor {
		return &Verdict{Code: CodeStarting, Level: LevelWait, Sentence: f.opening(now) + "; its firmware is starting."}
	}
	if now.Sub(f.Began) < patienceSystem {
		return loading("%s; the installed system has not been heard yet.", f.opening(now))
	}
	v := warn(CodeNoSystem, f.opening(now)+"; nothing was heard of an installed system"+f.lastLine(f.Began, now)+".",
		"look at its console; a system with fixed addresses and no way to the appliance says nothing here")
	v.Console = f.Tail
	return v
}
