package virtual

import (
	"net/http"
	"strconv"
	"time"
)

// firmwareVersion is what the manager says of itself.
const firmwareVersion = "1.0"

type object = map[string]any

// link is a reference to another resource.
func link(path string) object { return object{"@odata.id": path} }

func resource(path, kind, id, name string) object {
	return object{"@odata.id": path, "@odata.type": kind, "Id": id, "Name": name}
}

func collection(path, name string, members ...string) any {
	refs := []object{}
	for _, m := range members {
		refs = append(refs, link(m))
	}
	kind := map[string]string{"Systems": "ComputerSystem", "Chassis": "Chassis", "Managers": "Manager", "EthernetInterfaces": "EthernetInterface", "Sessions": "Session", "Accounts": "ManagerAccount", "VirtualMedia": "VirtualMedia"}[name]
	return object{
		"@odata.id": path, "@odata.type": "#" + kind + "Collection." + kind + "Collection", "Name": name,
		"Members": refs, "Members@odata.count": len(refs),
	}
}

func (m *Machine) serviceRoot() any {
	r := resource(root, "#ServiceRoot.v1_9_0.ServiceRoot", "RootService", "Root Service")
	r["RedfishVersion"] = "1.13.0"
	r["UUID"] = m.cfg.UUID
	r["Vendor"] = m.cfg.Vendor
	r["Product"] = "Virtual BMC"
	r["Systems"], r["Chassis"], r["Managers"] = link(root+"/Systems"), link(root+"/Chassis"), link(root+"/Managers")
	r["SessionService"], r["AccountService"] = link(sessionsRoot), link(accountsRoot)
	r["Links"] = object{"Sessions": link(sessionsPath)}
	return r
}

func (m *Machine) odata() any {
	entry := func(name, path string) object { return object{"name": name, "kind": "Singleton", "url": path} }
	return object{"@odata.context": root + "/$metadata", "value": []object{
		entry("Service", root), entry("Systems", root+"/Systems"), entry("Chassis", root+"/Chassis"),
		entry("Managers", root+"/Managers"), entry("SessionService", sessionsRoot),
	}}
}

// metadata is the OData document that DSP0266 asks for. The schemas are DMTF's; none is extended.
func metadata(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("OData-Version", "4.0")
	_, _ = w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
<edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/ServiceRoot_v1.xml"><edmx:Include Namespace="ServiceRoot"/></edmx:Reference>
<edmx:DataServices><Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
<EntityContainer Name="Service" Extends="ServiceRoot.v1_9_0.ServiceContainer"/></Schema></edmx:DataServices></edmx:Edmx>
`))
}

// systemMembers are the members of a system that a PATCH may name and that cannot be written.
var systemMembers = []string{
	"@odata.id", "@odata.type", "@odata.etag", "Id", "Name", "SystemType", "UUID", "SerialNumber", "Manufacturer", "Model", "HostName",
	"PowerState", "Status", "LastResetTime", "BiosVersion", "ProcessorSummary", "MemorySummary", "EthernetInterfaces", "VirtualMedia", "Links", "Actions",
}

// system is the computer system and its tag, both of one instant.
func (m *Machine) system() (body any, tag string) {
	m.mu.Lock()
	s := m.state
	m.mu.Unlock()
	tag = etag(s.version)
	r := resource(systemPath, "#ComputerSystem.v1_13_0.ComputerSystem", "1", m.cfg.Name)
	r["@odata.etag"] = tag
	r["SystemType"] = "Virtual"
	r["UUID"] = m.cfg.UUID
	r["SerialNumber"], r["Manufacturer"], r["Model"] = m.cfg.Serial, m.cfg.Vendor, m.cfg.Model
	r["PowerState"] = s.power
	r["Status"] = status(s)
	r["LastResetTime"] = stamp(s.lastReset)
	r["Boot"] = object{
		"BootSourceOverrideTarget": s.boot.Target, "BootSourceOverrideTarget@Redfish.AllowableValues": targets,
		"BootSourceOverrideEnabled": s.boot.Enabled, "BootSourceOverrideEnabled@Redfish.AllowableValues": enablers,
		"BootSourceOverrideMode": s.boot.Mode, "BootSourceOverrideMode@Redfish.AllowableValues": modes,
	}
	r["ProcessorSummary"] = object{"Count": 1, "LogicalProcessorCount": m.cfg.CPUs, "Model": "QEMU TCG", "Status": status(s)}
	r["MemorySummary"] = object{"TotalSystemMemoryGiB": float64(m.cfg.MemoryMiB) / 1024, "Status": status(s)}
	r["EthernetInterfaces"] = link(nicsPath)
	r["VirtualMedia"] = link(systemMedia)
	r["Links"] = object{"Chassis": []object{link(chassisPath)}, "ManagedBy": []object{link(managerPath)}}
	r["Actions"] = object{"#ComputerSystem.Reset": object{"target": resetPath, "ResetType@Redfish.AllowableValues": resetTypes}}
	return r, tag
}

// status is Redfish's health of a system: a start that failed shows here.
func status(s state) object {
	out := object{"State": "Enabled", "Health": "OK"}
	if s.fault != "" {
		out["Health"] = "Critical"
		out["Conditions"] = []object{{"Message": s.fault, "MessageId": registry + "GeneralError", "Severity": "Critical"}}
	}
	return out
}

// stamp is a time as Redfish writes it, or null.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}

func nicID(i int) string { return strconv.Itoa(i + 1) }

func (m *Machine) ethernetCollection() any {
	var members []string
	for i := range m.cfg.NICs {
		members = append(members, nicsPath+"/"+nicID(i))
	}
	return collection(nicsPath, "EthernetInterfaces", members...)
}

func (m *Machine) ethernet(i int) any {
	n := m.cfg.NICs[i]
	r := resource(nicsPath+"/"+nicID(i), "#EthernetInterface.v1_6_0.EthernetInterface", nicID(i), "NIC "+nicID(i))
	r["MACAddress"], r["PermanentMACAddress"] = n.MAC, n.MAC
	r["InterfaceEnabled"] = true
	r["Status"] = object{"State": "Enabled", "Health": "OK"}
	return r
}

func (m *Machine) chassis() any {
	m.mu.Lock()
	s := m.state
	m.mu.Unlock()
	r := resource(chassisPath, "#Chassis.v1_14_0.Chassis", "1", m.cfg.Name)
	r["ChassisType"] = "RackMount"
	r["SerialNumber"], r["Manufacturer"], r["Model"] = m.cfg.Serial, m.cfg.Vendor, m.cfg.Model
	r["PowerState"] = s.power
	r["Status"] = status(s)
	r["Links"] = object{"ComputerSystems": []object{link(systemPath)}, "ManagedBy": []object{link(managerPath)}}
	return r
}

func (m *Machine) manager() any {
	now := m.now()
	r := resource(managerPath, "#Manager.v1_11_0.Manager", "1", m.cfg.Name+" BMC")
	r["ManagerType"] = "BMC"
	r["FirmwareVersion"] = firmwareVersion
	r["Manufacturer"], r["Model"] = m.cfg.Vendor, "Virtual BMC"
	r["DateTime"], r["DateTimeLocalOffset"] = now.UTC().Format(time.RFC3339), "+00:00"
	r["PowerState"] = powerOn
	r["VirtualMedia"] = link(managerMedia)
	r["Status"] = object{"State": "Enabled", "Health": "OK"}
	r["Links"] = object{"ManagerForServers": []object{link(systemPath)}, "ManagerForChassis": []object{link(chassisPath)}}
	return r
}

func (m *Machine) sessionService() any {
	r := resource(sessionsRoot, "#SessionService.v1_1_8.SessionService", "SessionService", "Session Service")
	r["ServiceEnabled"] = true
	r["SessionTimeout"] = int(sessionTimeout / time.Second)
	r["Sessions"] = link(sessionsPath)
	r["Status"] = object{"State": "Enabled", "Health": "OK"}
	return r
}

func (m *Machine) sessionCollection() any {
	var members []string
	for _, s := range m.sessions.list() {
		members = append(members, sessionsPath+"/"+s.id)
	}
	return collection(sessionsPath, "Sessions", members...)
}

func (s session) resource() any {
	r := resource(sessionsPath+"/"+s.id, "#Session.v1_4_0.Session", s.id, "User Session")
	r["UserName"], r["CreatedTime"] = s.user, s.created.UTC().Format(time.RFC3339)
	return r
}
