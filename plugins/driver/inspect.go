package driver

// Inspect reads what a machine is made of.
//
//	inspect() -> Inventory
//
// Out of band (by a BMC) it reads without disturbing the machine. What cannot be read is left out and named in
// warnings; the operation fails only when the machine itself or its power cannot be read.
type Inspect interface {
	Inspect(ctx *Context) (Inventory, error)
}

// Inventory is what a BMC tells about its machine. MACs and addresses are the host's, never the BMC's. MACs are
// lower-case with colons, each once; placeholders are left out.
type Inventory struct {
	Manufacturer string   `json:"manufacturer"`
	Model        string   `json:"model"`
	SerialNumber string   `json:"serialNumber"`
	Power        string   `json:"power"` // "on", "off", "unknown"
	MACs         []string `json:"macs"`
	IPAddresses  []string `json:"ipAddresses"`
	ProductUUID  string   `json:"productUuid,omitempty"` // lower-case, in the byte order that the BMC prints
	Board        *Board   `json:"board,omitempty"`
	BMC          *BMCInfo `json:"bmc,omitempty"`
	Sensors      *Sensors `json:"sensors,omitempty"`

	BIOSVersion string   `json:"biosVersion,omitempty"`
	CPUs        int      `json:"cpus,omitempty"` // sockets
	CPUModel    string   `json:"cpuModel,omitempty"`
	MemoryBytes int64    `json:"memoryBytes,omitempty"`
	Health      string   `json:"health,omitempty"`   // the BMC's word: "OK", "Warning", "Critical"
	Warnings    []string `json:"warnings,omitempty"` // fields that could not be read
}

// Board is the main board.
type Board struct {
	Manufacturer string `json:"manufacturer,omitempty"`
	Product      string `json:"product,omitempty"`
	Serial       string `json:"serial,omitempty"`
}

// BMCInfo is the BMC's own identity.
type BMCInfo struct {
	Firmware     string `json:"firmware,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	Model        string `json:"model,omitempty"`
	MAC          string `json:"mac,omitempty"`
	IPAddress    string `json:"ipAddress,omitempty"`
}

// Sensors counts sensors. Problems names at most 32 that are neither fine nor absent.
type Sensors struct {
	Count    int      `json:"count"`
	OK       int      `json:"ok"`
	Problems []string `json:"problems"`
}

func inspectKind() Kind {
	return Kind{Name: "inspect", Operations: []Operation{op0("inspect", Inspect.Inspect)}}
}
