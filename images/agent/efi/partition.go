package efi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/images/layout"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// maxPartitions bounds the partitions that are told of a machine.
const maxPartitions = 512

func guidText(b []byte) string { return strings.ToLower(layout.GUID(b)) }

func gptPartition(guid []byte) string { return "gpt:" + guidText(guid) }

func mbrPartition(signature uint32, number int) string {
	return fmt.Sprintf("mbr:%08x-%d", signature, number)
}

// partitions names the partitions of a machine's disks as entries do. partial tells what could not be read.
func partitions(dev string, disks []agentv1.Disk) (all []agentv1.BootPartition, partial []string) {
	for _, d := range disks {
		if d.Bytes == 0 {
			continue // a drive without a medium
		}
		ids, err := partitionsOf(filepath.Join(dev, d.Name), d)
		if err != nil {
			partial = append(partial, fmt.Sprintf("partitions of %s: %v", clean(d.Name, 32), err))
		}
		t := agentv1.DiskTarget{Serial: d.Serial, WWN: d.WWN, Name: d.Name, Bytes: d.Bytes, SectorSize: d.SectorSize}
		for _, id := range ids {
			if len(all) == maxPartitions {
				return all, append(partial, "more partitions than are looked at")
			}
			all = append(all, agentv1.BootPartition{Partition: id, Disk: t})
		}
	}
	return all, partial
}

func partitionsOf(path string, d agentv1.Disk) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	g, err := layout.ReadGPT(f, d.Bytes, max(d.SectorSize, 512))
	var broken *fs.PathError
	switch {
	case errors.As(err, &broken):
		return nil, broken
	case err == nil:
		var ids []string
		for i := range g.Count() {
			if e := g.Entry(i); len(e) >= 32 && [16]byte(e[:16]) != [16]byte{} {
				ids = append(ids, gptPartition(e[16:32]))
			}
		}
		return ids, nil
	}
	sector := make([]byte, 512)
	if _, err := f.ReadAt(sector, 0); err != nil {
		return nil, err
	}
	if sector[510] != 0x55 || sector[511] != 0xaa {
		return nil, nil
	}
	signature := binary.LittleEndian.Uint32(sector[440:])
	var ids []string
	for i := range 4 {
		if e := sector[446+16*i:]; e[4] != 0 && e[4] != 0xee {
			ids = append(ids, mbrPartition(signature, i+1))
		}
	}
	return ids, nil
}
