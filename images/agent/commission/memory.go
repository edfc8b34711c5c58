package commission

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of the memory test, in bytes.
const (
	memoryReserve = 192 << 20 // that is left free at least, so that the ramdisk goes on
	memoryLeast   = 16 << 20  // below which there is nothing to test
	memoryPiece   = 4 << 20   // of work between two looks at the clock
)

// pattern gives the word at an index. Each is written over the whole memory before any of it is read back, so that what is
// read comes from the modules and not from a cache.
type pattern struct {
	name string
	word func(i uint64) uint64
}

var patterns = []pattern{
	{"addresses, mixed", mixed},
	{"addresses, mixed, inverted", func(i uint64) uint64 { return ^mixed(i) }},
	{"0x55", func(uint64) uint64 { return 0x5555555555555555 }},
	{"0xaa", func(uint64) uint64 { return 0xaaaaaaaaaaaaaaaa }},
}

// mixed spreads an index over all bits of a word (the finalizer of SplitMix64).
func mixed(i uint64) uint64 {
	i += 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return i ^ i>>31
}

// memory fills most of the free memory with patterns and reads them back.
func (t *Tester) memory(ctx context.Context, r *run) error {
	total, free, err := meminfo(filepath.Join(t.cfg.Proc, "meminfo"))
	if err != nil {
		return err
	}
	size := min(int64(float64(free)*r.with["percent"]/100), free-memoryReserve) / memoryPiece * memoryPiece
	if size < memoryLeast {
		return cannot("only %d MB of memory are free, of which %d MB must stay so", free>>20, memoryReserve>>20)
	}
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return cannot("the kernel gives no %d MB of memory: %v", size>>20, err)
	}
	defer func() { _ = unix.Munmap(b) }()
	corrected, fatal := t.edac()
	m := &memoryTest{r: r, words: unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8)}
	passes := int(r.with["passes"])
	m.total = size * int64(2*len(patterns)*passes)
	for range passes {
		for _, p := range patterns {
			if err := m.try(ctx, p); err != nil {
				return err
			}
		}
	}
	r.did()
	r.value("memory", "tested", "MB", float64(size)/1e6)
	r.text("memory", "not reached", "%d MB of %d: what the kernel, this ramdisk and the firmware hold, and a reserve", (total-size)/1e6, total/1e6)
	r.atMost("memory", "wrong words", "words", float64(m.wrong.Load()), "maxErrors")
	if c, f := t.edac(); c >= 0 {
		r.value("memory", "errors corrected meanwhile", "errors", float64(c-corrected))
		r.value("memory", "errors not corrected meanwhile", "errors", float64(f-fatal))
	} else {
		r.text("memory", "errors corrected meanwhile", "not measured: the memory controller has no driver here, or no ECC")
	}
	return nil
}

// memoryTest is one run over the memory.
type memoryTest struct {
	r     *run
	words []uint64
	total int64 // bytes of all passes
	done  atomic.Int64
	wrong atomic.Int64
}

// try writes a pattern everywhere, then reads it back.
func (m *memoryTest) try(ctx context.Context, p pattern) error {
	if err := m.each(ctx, p.name+", writing", func(part []uint64, first uint64) { fill(part, first, p) }); err != nil {
		return err
	}
	return m.each(ctx, p.name+", reading", func(part []uint64, first uint64) {
		wrong, at := check(part, first, p)
		if wrong > 0 && m.wrong.Add(int64(wrong)) <= 16 {
			i := at - first
			m.r.log.line("%s: word %#x is %#x at %s", p.name, p.word(at), part[i], physical(unsafe.Pointer(&part[i])))
		}
	})
}

func fill(part []uint64, first uint64, p pattern) {
	for i := range part {
		part[i] = p.word(first + uint64(i))
	}
}

// check counts the words that differ, and gives the index of the first.
func check(part []uint64, first uint64, p pattern) (wrong int, at uint64) {
	for i, v := range part {
		if v != p.word(first+uint64(i)) {
			if wrong == 0 {
				at = first + uint64(i)
			}
			wrong++
		}
	}
	return wrong, at
}

// each does all pieces on all processors.
func (m *memoryTest) each(ctx context.Context, what string, do func(part []uint64, first uint64)) error {
	const piece = memoryPiece / 8
	stop := everySecond(ctx, func() { m.r.progress(m.done.Load(), m.total, "bytes", what) })
	defer stop()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for ctx.Err() == nil {
				first := (next.Add(1) - 1) * piece
				if first >= int64(len(m.words)) {
					return
				}
				do(m.words[first:min(first+piece, int64(len(m.words)))], uint64(first))
				m.done.Add(memoryPiece)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// physical says where a word lies in the machine's memory, as /proc/self/pagemap tells root (Linux, pagemap.rst).
func physical(p unsafe.Pointer) string {
	at := uint64(uintptr(p))
	page := uint64(os.Getpagesize())
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return "an address that the kernel does not tell"
	}
	defer f.Close()
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(at/page*8)); err != nil {
		return "an address that the kernel does not tell"
	}
	frame := binary.LittleEndian.Uint64(b[:]) & (1<<55 - 1)
	if frame == 0 {
		return "an address that the kernel does not tell"
	}
	return fmt.Sprintf("physical address %#x", frame*page+at%page)
}

// meminfo reads the memory that the kernel has and that is free, in bytes.
func meminfo(path string) (total, free int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		key, rest, _ := strings.Cut(s.Text(), ":")
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil || kb < 0 || kb > 1<<50 {
			continue
		}
		switch key {
		case "MemTotal":
			total = kb << 10
		case "MemAvailable":
			free = kb << 10
		}
	}
	if total == 0 || free == 0 || free > total {
		return 0, 0, fmt.Errorf("the kernel does not say how much memory is free")
	}
	return total, free, nil
}

// edac sums the errors that the memory controllers have corrected and not corrected; -1 where nobody counts them.
func (t *Tester) edac() (corrected, fatal int64) {
	sum := func(name string) int64 {
		files, _ := filepath.Glob(filepath.Join(t.cfg.Sys, "devices/system/edac/mc/mc*", name))
		n := int64(-1)
		for _, f := range files {
			if v, err := strconv.ParseInt(readText(f), 10, 64); err == nil && v >= 0 {
				n = max(n, 0) + v
			}
		}
		return n
	}
	return sum("ce_count"), sum("ue_count")
}
