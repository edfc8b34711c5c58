package agentv1

import "encoding/json"

// KindDriverInvoke runs one operation of a driver: DriverInvoke → DriverInvokeResult. It is always destructive, because
// driver operations include power and deploy, so it is always signed.
const KindDriverInvoke = "driver.invoke"

// DriverInvoke is the payload of a driver.invoke, whoever executes it.
type DriverInvoke struct {
	WorkflowID string `json:"workflowId"`
	StepID     string `json:"stepId"`
	Attempt    int    `json:"attempt"` // from 0
	// TargetNodeID names the machine when the command goes to the site; a machine's own agent gets none.
	TargetNodeID string           `json:"targetNodeId,omitempty"`
	Args         DriverInvokeArgs `json:"args"`
}

// DriverInvokeArgs names the operation. Driver and Config are the machine's binding of the concern; without one the executor
// picks the one driver it has for the concern.
type DriverInvokeArgs struct {
	Concern   string          `json:"concern"`
	Operation string          `json:"operation"`
	Args      json.RawMessage `json:"args,omitempty"` // as the step has them
	Driver    string          `json:"driver,omitempty"`
	Config    json.RawMessage `json:"config,omitempty"` // secrets stand in it as references
}

// DriverInvokeResult is what the operation gave.
type DriverInvokeResult struct {
	Result json.RawMessage `json:"resultJson"`
}

// Advertised is a driver that a ramdisk carries.
type Advertised struct {
	ID         string              `json:"id"`
	Version    string              `json:"version"`
	Operations map[string][]string `json:"operations"` // by kind
}

// RamdiskDrivers are the drivers built into this build's agent.
func RamdiskDrivers() []Advertised {
	return []Advertised{
		{ID: "ramdisk", Version: "1.0.0", Operations: map[string][]string{"inspect": {"inspect"}}},
		{ID: "image-stream", Version: "1.0.0", Operations: map[string][]string{"deploy": {"deploy", "tearDown"}}},
	}
}

// DeploySpec is the argument of image-stream's deploy.deploy as the site sends it to an agent: what Write orders, in the
// words of the contract of drivers, and first-boot data. The disk is one that the site picked by the step's rule.
type DeploySpec struct {
	Machine    string            `json:"machine"` // id
	Image      string            `json:"image"`   // path of its chunk index below a boot URL
	SHA256     string            `json:"sha256"`  // of the index, hex
	Disk       DiskTarget        `json:"disk"`
	Seed       map[string][]byte `json:"seed,omitempty"` // as in Configure; none: the disk stays as the image is
	RawBytes   int64             `json:"rawBytes"`
	SectorSize int               `json:"sectorSize"`
	FSUUIDs    []string          `json:"fsUuids,omitempty"`
	WipeOthers bool              `json:"wipeOthers,omitempty"`
}

// DeployResult is what deploy.deploy wrote.
type DeployResult struct {
	Bytes  int64  `json:"bytes"`  // read back from the disk
	SHA256 string `json:"sha256"` // of the index whose every chunk was read back
}

// TearDownSpec is the argument of image-stream's deploy.tearDown as the site sends it. Only the disks listed are touched.
type TearDownSpec struct {
	Machine string       `json:"machine"` // id
	Wipe    string       `json:"wipe"`    // as Wipe.Method; "" wipes nothing
	Disks   []DiskTarget `json:"disks,omitempty"`
}
