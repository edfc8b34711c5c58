package agentv1

import "time"

// Inventory is what the agent found. Every string is hostile text from firmware.
type Inventory struct {
	Taken    time.Time `json:"taken"`
	Partial  []string  `json:"partial,omitempty"` // parts that could not be read, with the reason
	Firmware string    `json:"firmware"`          // "bios", "uefi"
	Secure   bool      `json:"secureBoot"`
	System   System    `json:"system"`
	CPUs     []CPU     `json:"cpus"` // per socket
	Memory   Memory    `json:"memory"`
	Disks    []Disk    `json:"disks"`
	NICs     []NIC     `json:"nics"`
	PCI      []PCI     `json:"pci,omitempty"`
	TPM      string    `json:"tpm,omitempty"` // "1.2", "2.0"
	BMC      *BMCInfo  `json:"bmc,omitempty"`
	Wants    []string  `json:"wants,omitempty"` // "driver bnx2 wants firmware bnx2/bnx2-mips-09-6.2.1b.fw"
	Kernel   string    `json:"kernel"`
}

// System is SMBIOS types 0, 1, 2, 3. Placeholders are empty.
type System struct {
	Manufacturer string `json:"manufacturer,omitempty"`
	Product      string `json:"product,omitempty"`
	Serial       string `json:"serial,omitempty"`
	UUID         string `json:"uuid,omitempty"` // canonical, byte order by the SMBIOS version
	BoardSerial  string `json:"boardSerial,omitempty"`
	BoardProduct string `json:"boardProduct,omitempty"`
	ChassisTag   string `json:"chassisAssetTag,omitempty"`
	BIOSVendor   string `json:"biosVendor,omitempty"`
	BIOSVersion  string `json:"biosVersion,omitempty"`
	BIOSDate     string `json:"biosDate,omitempty"`
}

// CPU is one socket.
type CPU struct {
	Socket  int      `json:"socket"`
	Model   string   `json:"model"`
	Vendor  string   `json:"vendor,omitempty"`
	Cores   int      `json:"cores"`
	Threads int      `json:"threads"`
	Flags   []string `json:"flags,omitempty"`
}

// Memory in bytes.
type Memory struct {
	Bytes   int64    `json:"bytes"`
	Modules []Module `json:"modules,omitempty"`
}

// Module is a DIMM.
type Module struct {
	Slot   string `json:"slot"`
	Bytes  int64  `json:"bytes"`
	Speed  int    `json:"mtps,omitempty"`
	Serial string `json:"serial,omitempty"`
	Part   string `json:"part,omitempty"`
}

// Disk is a whole block device.
type Disk struct {
	Name       string   `json:"name"`
	ByID       []string `json:"byId,omitempty"`
	Serial     string   `json:"serial,omitempty"`
	WWN        string   `json:"wwn,omitempty"` // "eui.…", "uuid.…", "nvme.…" or "0x…"
	Model      string   `json:"model,omitempty"`
	Vendor     string   `json:"vendor,omitempty"`
	Bytes      int64    `json:"bytes"`
	SectorSize int      `json:"sectorSize"` // logical, from BLKSSZGET
	Physical   int      `json:"physicalSectorSize"`
	Rotational bool     `json:"rotational"`
	Removable  bool     `json:"removable"`
	ReadOnly   bool     `json:"readOnly,omitempty"`
	Transport  string   `json:"transport,omitempty"` // "nvme", "sata", "sas", "scsi", "virtio", "usb", "iscsi", "fc", "mmc"
	Virtual    bool     `json:"virtual,omitempty"`   // a BMC's virtual medium
	Multipath  bool     `json:"multipath,omitempty"`
	Controller string   `json:"controller,omitempty"` // PCI address
}

// NIC is a network port.
type NIC struct {
	Name    string   `json:"name"`
	MAC     string   `json:"mac"`
	Driver  string   `json:"driver,omitempty"`
	Speed   int      `json:"mbps,omitempty"`
	Link    bool     `json:"link"`
	Boot    bool     `json:"boot,omitempty"`
	PCI     string   `json:"pci,omitempty"`
	Addrs   []string `json:"addresses,omitempty"`
	BMCUSB  bool     `json:"bmcUsb,omitempty"` // the BMC's own USB port, never an identity
	LLDP    *LLDP    `json:"lldp,omitempty"`
	Virtual bool     `json:"virtual,omitempty"`
}

// LLDP is the switch port on the other end.
type LLDP struct {
	Chassis string `json:"chassis,omitempty"`
	Port    string `json:"port,omitempty"`
	System  string `json:"system,omitempty"`
}

// PCI is a device.
type PCI struct {
	Address string `json:"address"`
	Class   string `json:"class"` // six hex digits
	Vendor  string `json:"vendor"`
	Device  string `json:"device"`
	Driver  string `json:"driver,omitempty"`
}

// BMCInfo is what the host sees of its BMC over IPMI in band.
type BMCInfo struct {
	MAC      string `json:"mac,omitempty"`
	Address  string `json:"address,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	GUID     string `json:"guid,omitempty"`
}
