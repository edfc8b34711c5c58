package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// childEnv tells this test binary to be the process that is killed; its value is the directory it works in.
const childEnv = "BCD_STORE_TEST_CHILD"

const childSteps = 20

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child runs one workflow to its end. Each effect is a line in a file, as durable as a disk that was written.
func child(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := Open(ctx, Config{Path: filepath.Join(dir, "bcd.db")})
	if err != nil {
		return err
	}
	defer db.Close()
	e := workflow.NewEngine(workflow.Config{Store: db})
	effects := filepath.Join(dir, "effects")
	e.Register(workflow.Kind{Name: "act", Budget: time.Minute,
		Run: func(_ context.Context, s workflow.StepContext) (any, error) {
			return nil, appendLine(effects, s.Command().Key)
		},
		Check: func(_ context.Context, s workflow.StepContext) (workflow.Verdict, any, error) {
			raw, err := os.ReadFile(effects)
			if err != nil && !os.IsNotExist(err) {
				return workflow.Unknown, nil, err
			}
			if strings.Contains(string(raw), s.Command().Key+"\n") {
				return workflow.Happened, nil, nil
			}
			return workflow.NotHappened, nil, nil
		}})
	e.RegisterVerb(workflow.Verb{Name: "test", Version: 1})
	id, err := theWorkflow(ctx, db, e)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	fmt.Println("ready")
	w, err := e.Wait(ctx, id)
	if err != nil || w.State != workflow.Done {
		return fmt.Errorf("workflow is %+v, %w", w, err)
	}
	cancel()
	return <-ended
}

// theWorkflow starts the workflow in the first process and finds it in the later ones.
func theWorkflow(ctx context.Context, db *DB, e *workflow.Engine) (string, error) {
	all, err := db.ListWorkflows(ctx, workflow.Filter{})
	if err != nil {
		return "", err
	}
	if len(all) > 0 {
		return all[0].ID, nil
	}
	if _, err := db.Machine(ctx, "m1"); app.CodeOf(err) == app.NotFound {
		if err := db.CreateMachine(ctx, &app.Machine{ID: "m1", Name: "one"}); err != nil {
			return "", err
		}
	}
	var steps []workflow.Step
	for i := range childSteps {
		steps = append(steps, workflow.Step{ID: fmt.Sprintf("step-%d", i), Kind: "act", Destructive: true})
	}
	w, err := e.Start(ctx, workflow.New{Verb: "test", MachineID: "m1", Steps: steps})
	if err != nil {
		return "", err
	}
	return w.ID, nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		return err
	}
	return f.Sync()
}

// A real process on a real file, killed again and again at arbitrary instants: every effect happens once, in order.
func TestKillNine(t *testing.T) {
	dir := t.TempDir()
	kills := 0
	for done := false; !done; {
		if kills > 200 {
			t.Fatal("the workflow never ends")
		}
		starting := kills < 5                         // these die while they open and migrate
		reach := 15 * time.Millisecond << (kills / 8) // a slow machine gets further, too
		done = !killed(t, dir, starting, time.Duration(rand.Int64N(int64(reach))))
		if !done {
			kills++
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(raw))
	if len(lines) != childSteps {
		t.Errorf("%d effects of %d steps after %d kills:\n%s", len(lines), childSteps, kills, raw)
	}
	for i, line := range lines {
		if want := fmt.Sprintf(":step-%d#0", i); !strings.HasSuffix(line, want) {
			t.Errorf("effect %d is %s", i, line)
		}
	}
	t.Logf("killed %d times", kills)
}

// killed runs the child, kills it after a while, which begins at once or when it is ready, and reports whether that came
// before its end.
func killed(t *testing.T, dir string, atOnce bool, after time.Duration) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := ""
	if !atOnce {
		ready, _ = bufio.NewReader(out).ReadString('\n')
	}
	if atOnce || ready == "ready\n" {
		timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err = cmd.Wait()
	if err == nil {
		return false
	}
	if cmd.ProcessState.Exited() { // not by a signal
		t.Fatalf("the process failed: %v\n%s", err, stderr.String())
	}
	return true
}
