package bmctest

func link(p string) map[string]any { return map[string]any{"@odata.id": p} }

// collection is a document with members.
func collection(p string, members ...string) map[string]any {
	list := []any{}
	for _, m := range members {
		list = append(list, link(m))
	}
	return map[string]any{"@odata.id": p, "Members": list, "Members@odata.count": len(members)}
}

func defaultTree() map[string]map[string]any {
	const v1 = "/redfish/v1"
	nic := func(p, mac string) map[string]any { return map[string]any{"@odata.id": p, "MACAddress": mac} }
	tree := map[string]map[string]any{}
	for _, d := range []map[string]any{
		{
			"@odata.id": v1, "RedfishVersion": "1.15.0", "Vendor": "Example",
			"Systems": link(v1 + "/Systems"), "Managers": link(v1 + "/Managers"), "Chassis": link(v1 + "/Chassis"),
			"AccountService": link(v1 + "/AccountService"), "Links": map[string]any{"Sessions": link(v1 + "/SessionService/Sessions")},
		},
		collection(v1+"/Systems", SystemPath),
		collection(v1+"/Managers", v1+"/Managers/1"),
		collection(v1 + "/SessionService/Sessions"),
		{"@odata.id": v1 + "/AccountService", "Accounts": link(v1 + "/AccountService/Accounts")},
		collection(v1+"/AccountService/Accounts", v1+"/AccountService/Accounts/1", v1+"/AccountService/Accounts/2"),
		{"@odata.id": v1 + "/AccountService/Accounts/1", "UserName": ""},
		{"@odata.id": v1 + "/AccountService/Accounts/2", "UserName": User},
		defaultSystem(v1),
		collection(SystemPath+"/EthernetInterfaces", SystemPath+"/EthernetInterfaces/1", SystemPath+"/EthernetInterfaces/2"),
		nic(SystemPath+"/EthernetInterfaces/1", "00-00-5E-00-53-01"),
		nic(SystemPath+"/EthernetInterfaces/2", "Not Available"),
		{
			"@odata.id": v1 + "/Managers/1", "FirmwareVersion": "1.2.3", "DateTime": "2026-11-29T12:00:00Z",
			"EthernetInterfaces": link(v1 + "/Managers/1/EthernetInterfaces"), "VirtualMedia": link(v1 + "/Managers/1/VirtualMedia"),
		},
		collection(v1+"/Managers/1/EthernetInterfaces", v1+"/Managers/1/EthernetInterfaces/1"),
		{
			"@odata.id": v1 + "/Managers/1/EthernetInterfaces/1", "MACAddress": "00:00:5e:00:53:f0",
			"IPv4Addresses": []any{map[string]any{"Address": "192.0.2.10"}},
		},
		collection(v1+"/Managers/1/VirtualMedia", v1+"/Managers/1/VirtualMedia/1", CDPath),
		virtualDrive(v1+"/Managers/1/VirtualMedia/1", "Floppy", "USBStick"),
		virtualDrive(CDPath, "CD", "DVD"),
		{
			"@odata.id": v1 + "/Chassis/1", "Manufacturer": "Example", "Model": "Board", "SerialNumber": "B1",
			"Thermal": link(v1 + "/Chassis/1/Thermal"),
		},
		{
			"@odata.id": v1 + "/Chassis/1/Thermal",
			"Temperatures": []any{
				map[string]any{"Name": "Inlet", "Status": map[string]any{"State": "Enabled", "Health": "OK"}},
				map[string]any{"Name": "CPU 1", "Status": map[string]any{"State": "Enabled", "Health": "Critical"}},
				map[string]any{"Name": "CPU 2", "Status": map[string]any{"State": "Absent"}},
			},
		},
	} {
		tree[key(d["@odata.id"].(string))] = d
	}
	return tree
}

func defaultSystem(v1 string) map[string]any {
	return map[string]any{
		"@odata.id": SystemPath, "Id": "1", "Manufacturer": "Example", "Model": "E1", "SerialNumber": "S1",
		"UUID":             "01234567-89AB-CDEF-0123-456789ABCDEF",
		"ProcessorSummary": map[string]any{"Count": 2}, "MemorySummary": map[string]any{"TotalSystemMemoryGiB": 96},
		"EthernetInterfaces": link(SystemPath + "/EthernetInterfaces"),
		"Links":              map[string]any{"Chassis": []any{link(v1 + "/Chassis/1")}, "ManagedBy": []any{link(v1 + "/Managers/1")}},
		"Boot": map[string]any{
			"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI",
			"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "Hdd", "Cd", "BiosSetup"},
		},
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target":                            SystemPath + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []any{"On", "ForceOff", "GracefulShutdown", "ForceRestart"},
		}},
	}
}
