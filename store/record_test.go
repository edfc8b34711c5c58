package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder/recordertest"
)

func openRecorder(t *testing.T, path string, anew bool) *Records {
	t.Helper()
	r, err := OpenRecords(t.Context(), path, anew)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func recorderPath(t *testing.T) string { return filepath.Join(t.TempDir(), "recorder.db") }

func TestRecordsConform(t *testing.T) {
	recordertest.Store(t, func(t *testing.T) app.RecordStore { return openRecorder(t, recorderPath(t), false) })
}

func rec(machine, kind, message string) app.Record {
	return app.Record{Time: time.Unix(1000, 0), Kind: kind, Level: "info", MachineID: machine, Message: message}
}

func messages(t *testing.T, r *Records, machine string, kinds ...string) (out []string) {
	t.Helper()
	all, err := r.ListRecords(t.Context(), app.RecordFilter{MachineID: machine, Kinds: kinds, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		out = append(out, x.Message)
	}
	return out
}

func TestRecordsOutliveTheProcessAndAreCountedAgain(t *testing.T) {
	path := recorderPath(t)
	r := openRecorder(t, path, false)
	batch := make([]app.Record, 0, MaxOtherRecords)
	for range MaxOtherRecords {
		batch = append(batch, rec("m-1", "bmc.power", "old"))
	}
	if err := r.AddRecords(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = openRecorder(t, path, false)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if r.total != MaxOtherRecords || r.counts[laneKey{"m-1", laneOther}] != MaxOtherRecords {
		t.Errorf("counted %d, %v", r.total, r.counts)
	}
	if err := r.AddRecords(t.Context(), []app.Record{rec("m-1", "bmc.power", "new")}); err != nil {
		t.Fatal(err)
	}
	if r.total >= MaxOtherRecords || messages(t, r, "m-1")[0] != "new" {
		t.Errorf("%d are kept over the bound", r.total)
	}
}

// A console that prints without end must not cost what workflows did, nor the network's part.
func TestAConsolePushesOutNothingElse(t *testing.T) {
	r := openRecorder(t, recorderPath(t), false)
	if err := r.AddRecords(t.Context(), []app.Record{rec("m-1", "workflow.step", "step"), rec("m-1", "dhcp.offer", "offer")}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		batch := make([]app.Record, 0, 1000)
		for range 1000 {
			batch = append(batch, rec("m-1", "console.line", "line"))
		}
		if err := r.AddRecords(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if got := messages(t, r, "m-1", "workflow.", "dhcp."); len(got) != 2 {
		t.Errorf("left: %v", got)
	}
	if n := r.counts[laneKey{"m-1", laneConsole}]; n > MaxConsoleRecords || n < MaxConsoleRecords/2 {
		t.Errorf("%d console lines", n)
	}
}

// Invented addresses do not fill the file, nor does anything over the whole bound.
func TestRecordsOfNobodyAndOfAllAreBounded(t *testing.T) {
	r := openRecorder(t, recorderPath(t), false)
	r.maxNobody = 2000
	for i := range 3 {
		batch := make([]app.Record, 0, 1000)
		for j := range 1000 {
			x := rec("", "dhcp.heard", "x")
			x.MAC, _ = app.MACFromBytes([]byte{2, 0, 0, byte(i), byte(j >> 8), byte(j)})
			batch = append(batch, x)
		}
		if err := r.AddRecords(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if r.nobody > r.maxNobody || r.nobody < r.maxNobody/2 {
		t.Errorf("%d of nobody", r.nobody)
	}
	r.max = 1000
	if err := r.AddRecords(t.Context(), []app.Record{rec("m-1", "bmc.power", "last")}); err != nil {
		t.Fatal(err)
	}
	if r.total > 1000 || messages(t, r, "m-1")[0] != "last" {
		t.Errorf("%d in all", r.total)
	}
	r.max, r.pages = MaxRecords, 1
	had := r.total
	if err := r.AddRecords(t.Context(), []app.Record{rec("m-1", "bmc.power", "last")}); err != nil {
		t.Fatal(err)
	}
	if r.total >= had {
		t.Errorf("a file that is too large still has %d of %d", r.total, had)
	}
}

// A file that is no recorder's, or is broken, is set aside; one that cannot be opened for another reason is not.
func TestADamagedRecorderFileIsSetAside(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"garbage": func(t *testing.T, path string) {
			overwrite(t, path, []byte("this is no database, and it is long enough"))
		},
		"another version": func(t *testing.T, path string) {
			r := openRecorder(t, path, false)
			if _, err := r.writer.ExecContext(t.Context(), "PRAGMA user_version = 99"); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"broken pages": func(t *testing.T, path string) {
			r := openRecorder(t, path, false)
			if err := r.AddRecords(t.Context(), []app.Record{rec("m-1", "a.b", "x")}); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 100; i < len(b); i++ {
				b[i] = 0xa5
			}
			overwrite(t, path, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := recorderPath(t)
			damage(t, path)
			r := openRecorder(t, path, false)
			if r.Aside() == nil {
				t.Error("it was taken over")
			}
			if err := r.AddRecords(t.Context(), []app.Record{rec("m-1", "a.b", "x")}); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(path + damagedSuffix); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := OpenRecords(t.Context(), filepath.Join(t.TempDir(), "none", "recorder.db"), false); app.CodeOf(err) != app.InvalidConfig {
		t.Errorf("without a directory: %v", err)
	}
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkAddRecords(b *testing.B) {
	r, err := OpenRecords(b.Context(), filepath.Join(b.TempDir(), "recorder.db"), false)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	x := rec("m-1", "dhcp.offer", "Address 192.0.2.101 was offered.")
	x.Data = []byte(`{"mac":"00:00:5e:00:53:01","address":"192.0.2.101","subnet":"net-1","interface":"eno2","request":"DISCOVER","stage":"firmware","arch":"x64","file":"snponly.efi"}`)
	batch := make([]app.Record, 500)
	for range b.N {
		for i := range batch {
			batch[i] = x
		}
		if err := r.AddRecords(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(batch))/b.Elapsed().Seconds(), "records/s")
}
