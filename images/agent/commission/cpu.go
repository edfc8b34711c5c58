package commission

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// computed is what every round of computing gives, on every processor of every architecture: see compute.
const computed = 0x9cd9014e

// cpu lets each processor compute known results for a time, pinned to it, so that one that errs is named.
func (t *Tester) cpu(ctx context.Context, r *run) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	var cpus []int
	for i := range 64 * len(set) {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	seconds := time.Duration(r.with["seconds"] * float64(time.Second))
	work, cancel := context.WithTimeout(ctx, seconds)
	defer cancel()
	before, counted := t.throttles()
	heat := map[string]float64{}
	begun := time.Now()
	stop := everySecond(work, func() {
		t.warmest(heat)
		r.progress(int64(time.Since(begun).Seconds()), int64(seconds.Seconds()), "s", "")
	})
	rounds := make([]atomic.Int64, len(cpus))
	wrong := make([]atomic.Int64, len(cpus))
	var wg sync.WaitGroup
	for i, n := range cpus {
		wg.Go(func() { r.occupy(work, n, &rounds[i], &wrong[i]) })
	}
	wg.Wait()
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.warmest(heat)
	took := time.Since(begun).Seconds()
	slowest, fastest := math.Inf(1), 0.0
	for i, n := range cpus {
		rate := float64(rounds[i].Load()) / took
		slowest, fastest = min(slowest, rate), max(fastest, rate)
		if bad := wrong[i].Load(); bad > 0 {
			r.fail("processor %d computed %d of %d rounds wrongly", n, bad, rounds[i].Load())
		}
		r.did()
	}
	r.value("", "processors", "", float64(len(cpus)))
	r.value("slowest processor", "speed", "rounds/s", slowest)
	r.value("fastest processor", "speed", "rounds/s", fastest)
	t.tellHeat(r, heat, before, counted)
	return nil
}

func (t *Tester) tellHeat(r *run, heat map[string]float64, before int64, counted bool) {
	if len(heat) == 0 {
		r.text("processor", "temperature", "not measured: no sensor can be read")
	}
	for _, s := range sorted(heat) {
		r.atMost(s, "highest temperature", "°C", heat[s], "maxTemperature")
	}
	if after, still := t.throttles(); counted && still {
		r.atMost("processors", "throttled", "events", float64(max(after-before, 0)), "maxThrottles")
	} else {
		r.text("processors", "throttled", "not measured: the kernel does not count it")
	}
}

func sorted(m map[string]float64) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// occupy computes on one processor until ctx ends. Its thread ends with it, because it stays pinned.
func (r *run) occupy(ctx context.Context, n int, rounds, wrong *atomic.Int64) {
	runtime.LockOSThread() // never unlocked: the runtime then drops the thread, and with it the affinity
	var one unix.CPUSet
	one.Set(n)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		r.log.line("processor %d cannot be chosen: %v", n, err)
	}
	for ctx.Err() == nil {
		if compute(computeSeed) != computed && wrong.Add(1) == 1 {
			r.log.line("processor %d gave a wrong result", n)
		}
		rounds.Add(1)
	}
}

const computeSeed = 0x9e3779b97f4a7c15

// compute makes a round of integer, vector and floating-point work, about a millisecond of it. Multiplications that are
// added to are fused everywhere, so that the result is the same on each architecture.
func compute(seed uint64) uint32 {
	var block [8192]byte
	x := seed
	for i := 0; i < len(block); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(block[i:], bits.RotateLeft64(x*0xbf58476d1ce4e5b9, int(x&63))/(x>>40|1))
	}
	for range 8 {
		sum := sha256.Sum256(block[:])
		copy(block[int(sum[0])*16:], sum[:])
	}
	const n = 32
	var a, b [n][n]float64
	for i := range n {
		for j := range n {
			v := binary.LittleEndian.Uint64(block[(i*n+j)*8:])
			a[i][j], b[j][i] = float64(v>>44)+1, math.Sqrt(float64(v&0xfffff)+1)
		}
	}
	out := crc32.ChecksumIEEE(block[:])
	for i := range n {
		for j := range n {
			s := 0.0
			for k := range n {
				s = math.FMA(a[i][k], b[k][j], s)
			}
			out = bits.RotateLeft32(out, 1) ^ uint32(math.Float64bits(s)>>20)
		}
	}
	return out
}

// cpuSensors are the drivers of sensors in processors, by hwmon name.
var cpuSensors = []string{"coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal", "apm_xgene"}

// warmest raises the highest temperature of each sensor of the processors, in °C.
func (t *Tester) warmest(heat map[string]float64) {
	chips, _ := filepath.Glob(filepath.Join(t.cfg.Sys, "class/hwmon/hwmon*"))
	for _, chip := range chips {
		name := readText(filepath.Join(chip, "name"))
		if !slices.Contains(cpuSensors, name) {
			continue
		}
		inputs, _ := filepath.Glob(filepath.Join(chip, "temp*_input"))
		for _, in := range inputs[:min(len(inputs), 256)] {
			milli, err := strconv.ParseInt(readText(in), 10, 32)
			if err != nil || milli < -50_000 || milli > 250_000 {
				continue
			}
			at := filepath.Base(chip) + " " + name
			heat[at] = max(heat[at], float64(milli)/1000)
		}
	}
}

// throttles sums how often processors have throttled themselves since power-on. ok is false where nobody counts it.
func (t *Tester) throttles() (n int64, ok bool) {
	for _, pattern := range []string{"core", "package"} {
		files, _ := filepath.Glob(filepath.Join(t.cfg.Sys, "devices/system/cpu/cpu[0-9]*/thermal_throttle", pattern+"_throttle_count"))
		for _, f := range files {
			v, err := strconv.ParseInt(readText(f), 10, 64)
			if err != nil || v < 0 {
				continue
			}
			n, ok = n+v, true
		}
	}
	return n, ok
}

// readText gives an attribute without surrounding white space, "" when it cannot be read.
func readText(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, _ := f.Read(b)
	return strings.TrimSpace(string(b[:n]))
}
