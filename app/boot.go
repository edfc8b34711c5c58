package app

import (
	"context"
	"time"
)

// Boot is one permission to netboot into the ramdisk, or to read a CD image: minted for a machine, a workflow and a power-on.
// The ramdisk's token is derived from Key and never stored.
type Boot struct {
	Key        string // in the boot-data URL; 80 random bits
	MachineID  string
	WorkflowID string
	MAC        MAC      // the port expected to netboot; "" any
	Address    string   // the site's address as that machine's network sees it, fixed when the boot is minted
	Rescue     []string // authorized keys; nil: not a rescue boot
	IsRescue   bool
	ISO        string // id of the CD image that is booted in place of the ramdisk; "": the ramdisk
	Media      bool   // the CD image is read by the machine's BMC, and the machine netboots nothing
	Read       int64  // bytes of the CD image that left, as last noted
	Created    time.Time
	Spent      time.Time // when the agent traded the token
	Revoked    time.Time // when the workflow moved on
	Refused    *Error    // why the ramdisk that came with it was turned away: it ran in another machine
}

// AgentSession is what a token was traded for. It dies with its boot.
type AgentSession struct {
	ID         string
	SecretHash string // hex SHA-256
	BootKey    string
	MachineID  string
	WorkflowID string
	BootID     string // the kernel's boot id
	Firmware   Firmware
	Created    time.Time
	Ended      time.Time
}

// PhoneHome is the one-time address an installed OS calls.
type PhoneHome struct {
	SecretHash string // hex SHA-256 of the secret in the path
	MachineID  string
	WorkflowID string
	Created    time.Time
}

// AgentStore keeps boots, sessions and phone-home addresses.
type AgentStore interface {
	// CreateBoot stores a boot and revokes every other live boot of its machine and ends its sessions, in one transaction.
	CreateBoot(ctx context.Context, b *Boot) error
	Boot(ctx context.Context, key string) (*Boot, error)
	LiveBoot(ctx context.Context, machineID string) (*Boot, error) // not revoked; NotFound
	RevokeBoots(ctx context.Context, machineID string) error       // and ends its sessions
	// RefuseBoot notes why a live boot's ramdisk was turned away; the first reason stays. A boot that is over is left alone.
	RefuseBoot(ctx context.Context, key string, why *Error) error
	// NoteRead notes how much of a boot's CD image left. It never goes down, and a boot that is over keeps what it had.
	NoteRead(ctx context.Context, key string, bytes int64) error
	// SpendBoot marks a boot spent and stores its session in one transaction; a Conflict when it was spent or revoked.
	SpendBoot(ctx context.Context, s *AgentSession, at time.Time) error
	AgentSession(ctx context.Context, id string) (*AgentSession, error)
	LiveAgentSession(ctx context.Context, machineID string) (*AgentSession, error) // not ended; NotFound

	// PutPhoneHome stores an address and forgets those of the machine's other workflows: a system left on another disk must
	// not vouch for the new one.
	PutPhoneHome(ctx context.Context, p *PhoneHome) error
	PhoneHome(ctx context.Context, secretHash string) (*PhoneHome, error)
	DeletePhoneHomes(ctx context.Context, machineID string) error
}
