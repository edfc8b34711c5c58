package app

import (
	"context"
	"time"
)

// Image is an operating-system disk image in the chunk store.
type Image struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`                   // unique
	State      string    `json:"state"`                  // "importing", "ready", "failed"
	Reason     string    `json:"reason,omitempty"`       // for failed
	Format     string    `json:"format"`                 // of the source: raw, qcow2, iso, rootfs or oci, and what is around it: raw.gz, qcow2.xz, rootfs.zst
	SourceSHA  string    `json:"sourceSha256,omitempty"` // hex, over the source bytes as delivered
	SourceSize int64     `json:"sourceBytes,omitempty"`
	RawBytes   int64     `json:"rawBytes,omitempty"`    // size of the disk the image describes
	UsedBytes  int64     `json:"usedBytes,omitempty"`   // of it, not zero
	StoreBytes int64     `json:"storedBytes,omitempty"` // new bytes this image added to the chunk store
	Index      string    `json:"indexSha256,omitempty"` // hex digest of the chunk index; what a deploy pins
	Layout     Layout    `json:"layout"`
	Created    time.Time `json:"created"`

	Phase ImagePhase `json:"phase,omitempty"` // while importing: what is being done
	Done  int64      `json:"done,omitempty"`  // while importing: bytes of the phase that are done
	Total int64      `json:"total,omitempty"` // while importing: bytes that the phase has, 0 unknown
}

// ImagePhase is a part of an import. Each counts its own bytes; what needs no second reading is received and stored at once.
type ImagePhase string

// The phases, in their order.
const (
	ImageReceiving ImagePhase = "receiving"           // the source comes in, as delivered
	ImageReading   ImagePhase = "reading the archive" // of a root file system: to know where everything will lie
	ImageStoring   ImagePhase = "storing the disk"    // the disk is cut into chunks, for what is first received whole
)

// TableISO is Layout.Table of a CD or DVD image.
const TableISO = "iso9660"

// ISO reports a CD or DVD image, which is read in place and never written to a disk.
func (i *Image) ISO() bool { return i.Layout.Table == TableISO }

// Layout is what an import found on the image, checked again before the first write of a deploy.
type Layout struct {
	Table      string      `json:"table"`      // "gpt", "mbr", "none", or "iso9660": a medium that is read, never written to a disk
	SectorSize int         `json:"sectorSize"` // logical sector the table was written for: 512 or 4096
	BIOS       bool        `json:"bios"`       // boot code for BIOS present
	UEFI       bool        `json:"uefi"`       // an EFI system partition with a loader at a removable or known path
	Partitions []Partition `json:"partitions,omitempty"`
}

// Partition is one entry of an image's table. Offsets and sizes are bytes.
type Partition struct {
	Number int    `json:"number"`
	Start  int64  `json:"start"`
	Size   int64  `json:"size"`
	Type   string `json:"type"` // GPT type GUID or MBR type in hex
	Name   string `json:"name,omitempty"`
	FS     string `json:"fs,omitempty"`     // "ext4", "vfat", "xfs", "btrfs", "lvm"
	FSUUID string `json:"fsUuid,omitempty"` // as the file system spells it
}

// ImageStore keeps the rows; the bytes are in images/catalog.
type ImageStore interface {
	CreateImage(ctx context.Context, i *Image) error
	Image(ctx context.Context, id string) (*Image, error) // by id or name
	ListImages(ctx context.Context) ([]Image, error)
	UpdateImage(ctx context.Context, id string, change func(*Image) error) (*Image, error)
	DeleteImage(ctx context.Context, id string) error
}
