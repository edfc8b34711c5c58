package agentv1

// KindBootOrder reads the firmware's boot order, and puts it right where this agent is the one that writes it:
// BootOrder → BootOrderResult. That it could not is a result and no error.
const KindBootOrder = "agent.boot-order"

// BootOrder is the payload of agent.boot-order.
type BootOrder struct {
	Write  bool        `json:"write,omitempty"`  // this agent is the machine's one writer
	Policy string      `json:"policy,omitempty"` // app.BootPolicy
	Own    []BootEntry `json:"own,omitempty"`    // the order that is ours; none: what is found
	// Remove names partitions that went with a wiped disk. An entry for one of them is removed, when no disk has it.
	Remove []string `json:"remove,omitempty"`
}

// BootEntry is one boot option, in the words of app.BootEntry. Strings are hostile text.
type BootEntry struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Protocol  string `json:"protocol,omitempty"`
	MAC       string `json:"mac,omitempty"`
	Partition string `json:"partition,omitempty"`
	File      string `json:"file,omitempty"`
	Path      string `json:"path,omitempty"`
	Inactive  bool   `json:"inactive,omitempty"`
}

// BootView is a boot order as the agent read it.
type BootView struct {
	Entries []BootEntry `json:"entries"` // those in the order first, as they are tried
	Order   []string    `json:"order"`
	Current string      `json:"current,omitempty"`
	Next    string      `json:"next,omitempty"`
	Timeout *int        `json:"timeout,omitempty"` // seconds before the first entry is tried; 65535: for ever; absent: firmware's default
}

// BootPartition is a partition that a disk has, as entries name it.
type BootPartition struct {
	Partition string     `json:"partition"`
	Disk      DiskTarget `json:"disk"`
}

// BootOrderResult is what was found, and what it is after the agent wrote.
type BootOrderResult struct {
	Firmware   string          `json:"firmware"` // "bios", "uefi"
	Found      BootView        `json:"found"`
	Now        *BootView       `json:"now,omitempty"`     // read back; absent: nothing was written
	Removed    []BootEntry     `json:"removed,omitempty"` // entries of wiped disks that are gone
	Partitions []BootPartition `json:"partitions,omitempty"`
	Partial    []string        `json:"partial,omitempty"` // what could not be read, with the reason
	Problem    *Error          `json:"problem,omitempty"` // why ours is not in place
}
