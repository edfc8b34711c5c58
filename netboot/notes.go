package netboot

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

// Notes are sentences about how a subnet is served that a person should read; none when all is well.
func (s *Server) Notes(sub app.Subnet) []string {
	var out []string
	rivals := s.Rivals()
	gives := slices.ContainsFunc(rivals, func(r app.Rival) bool { return r.Interface == sub.Interface && r.Offered.IsValid() })
	s.mu.Lock()
	defer s.mu.Unlock()
	st, listened := s.status[sub.Interface]
	_, ours := s.source(sub)
	switch {
	case !listened && sub.Interface == "", !listened && !sub.Answers():
	case !listened:
		out = append(out, "The interface was not looked at yet.")
	case st.Error != "":
		out = append(out, "It is not fully served: "+st.Error+".")
	case sub.Answers() && !ours && sub.Interface == "":
		out = append(out, "This host has no route to it, so nothing is answered: give it one.")
	case sub.Answers() && !ours:
		out = append(out, fmt.Sprintf("Interface %s has no address in %s, so nothing is answered: give it one.", sub.Interface, sub.CIDR))
	case !st.Carrier:
		out = append(out, "Interface "+sub.Interface+" has no link.")
	case sub.Interface != "" && !gives && (sub.Mode == app.SubnetProxy || sub.Mode == app.SubnetHTTP):
		out = append(out, "No DHCP server was heard: in this mode machines need one to get an address.")
	}
	return out
}

// KeepYours gives the lines with which other DHCP servers send netbooting machines to us: for those that overlook a proxy,
// and for networks that no proxy reaches. There are none while we have no address there.
func (s *Server) KeepYours(sub app.Subnet) []app.ServerLines {
	s.mu.Lock()
	sub.Mode = app.SubnetProxy // the lines are of use before it is turned on, too
	me, ok := s.source(sub)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	base := s.base.url(me)
	return keepYours(sub.CIDR, me, base+bootfile.LoaderPath+bootfile.LoaderX64, base+"/boot/script?mac=${mac:hexhyp}")
}

// keepYours writes the lines. iPXE writes its user class bare, other builds of it as the list of RFC 3004, whose first octet is
// a length: dnsmasq knows both by itself, the others are told.
// loader is the address of the loader for UEFI HTTP Boot, script that of iPXE's script, in which
// iPXE fills in the machine's MAC.
func keepYours(network netip.Prefix, me netip.Addr, loader, script string) []app.ServerLines {
	const bios, efi = bootfile.LoaderBIOS, bootfile.LoaderX64
	scope := network.Addr().String()
	return []app.ServerLines{
		{Server: "ISC dhcpd", Where: "in the subnet of dhcpd.conf", Lines: []string{
			fmt.Sprintf("next-server %s;", me),
			fmt.Sprintf(`if substring(option user-class, 0, 4) = "iPXE" or substring(option user-class, 1, 4) = "iPXE" { filename "%s"; } elsif substring(option vendor-class-identifier, 0, 10) = "HTTPClient" { option vendor-class-identifier "HTTPClient"; filename "%s"; } `+
				`elsif substring(option vendor-class-identifier, 0, 20) = "PXEClient:Arch:00000" { filename "%s"; } else { filename "%s"; }`, script, loader, bios, efi),
		}},
		{Server: "Kea", Where: "in Dhcp4 of kea-dhcp4.conf", Lines: []string{
			fmt.Sprintf(`"next-server": "%s",`, me),
			fmt.Sprintf(`"client-classes": [ { "name": "bcd-ipxe", "test": "substring(option[77].hex,0,4) == 'iPXE' or substring(option[77].hex,1,4) == 'iPXE'", "boot-file-name": "%s" }, `+
				`{ "name": "bcd-http", "test": "substring(option[60].hex,0,10) == 'HTTPClient'", "boot-file-name": "%s", "option-data": [ { "code": 60, "space": "dhcp4", "data": "HTTPClient", "always-send": true } ] }, `+
				`{ "name": "bcd-bios", "test": "not member('bcd-ipxe') and substring(option[60].hex,0,20) == 'PXEClient:Arch:00000'", "boot-file-name": "%s" }, `+
				`{ "name": "bcd-uefi", "test": "not member('bcd-ipxe') and not member('bcd-bios') and substring(option[60].hex,0,9) == 'PXEClient'", "boot-file-name": "%s" } ],`, script, loader, bios, efi),
		}},
		{Server: "dnsmasq", Where: "in dnsmasq.conf", Lines: []string{
			"dhcp-userclass=set:ipxe,iPXE", "dhcp-vendorclass=set:http,HTTPClient", "dhcp-vendorclass=set:bios,PXEClient:Arch:00000",
			"dhcp-option-force=tag:http,60,HTTPClient", "dhcp-boot=tag:http," + loader,
			"dhcp-boot=tag:ipxe," + script,
			fmt.Sprintf("dhcp-boot=tag:!ipxe,tag:bios,%s,,%s", bios, me),
			fmt.Sprintf("dhcp-boot=tag:!ipxe,tag:!bios,tag:!http,%s,,%s", efi, me),
		}},
		{Server: "Windows DHCP", Where: "in PowerShell on the server", Lines: []string{
			"Add-DhcpServerv4Class -Name bcd-ipxe -Type User -Data iPXE",
			`Add-DhcpServerv4Class -Name bcd-ipxe-list -Type User -Data "$([char]4)iPXE"`,
			`Add-DhcpServerv4Class -Name bcd-http -Type Vendor -Data "HTTPClient"`,
			`Add-DhcpServerv4Class -Name bcd-bios -Type Vendor -Data "PXEClient:Arch:00000"`,
			fmt.Sprintf("Add-DhcpServerv4Policy -ScopeId %s -Name bcd-ipxe -Condition OR -UserClass EQ,bcd-ipxe,bcd-ipxe-list -ProcessingOrder 1", scope),
			fmt.Sprintf("Add-DhcpServerv4Policy -ScopeId %s -Name bcd-http -Condition OR -VendorClass EQ,bcd-http* -ProcessingOrder 2", scope),
			fmt.Sprintf("Add-DhcpServerv4Policy -ScopeId %s -Name bcd-bios -Condition OR -VendorClass EQ,bcd-bios* -ProcessingOrder 3", scope),
			"Add-DhcpServerv4OptionDefinition -Name ClassIdentifier -OptionId 60 -Type String",
			fmt.Sprintf("Set-DhcpServerv4OptionValue -ScopeId %s -OptionId 66 -Value %s", scope, me),
			fmt.Sprintf("Set-DhcpServerv4OptionValue -ScopeId %s -OptionId 67 -Value %s", scope, efi),
			fmt.Sprintf("Set-DhcpServerv4OptionValue -ScopeId %s -PolicyName bcd-ipxe -OptionId 67 -Value '%s'", scope, script),
			fmt.Sprintf("Set-DhcpServerv4OptionValue -ScopeId %s -PolicyName bcd-http -OptionId 60 -Value HTTPClient", scope),
			fmt.Sprintf("Set-DhcpServerv4OptionValue -ScopeId %s -PolicyName bcd-http -OptionId 67 -Value '%s'", scope, loader),
			fmt.Sprintf("Set-DhcpServerv4OptionValue -ScopeId %s -PolicyName bcd-bios -OptionId 67 -Value %s", scope, bios),
		}},
	}
}
