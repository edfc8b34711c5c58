package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// BenchmarkWorkflows runs a batch of 200 workflows of five steps at once, on a real file: 1 operation is the whole batch.
func BenchmarkWorkflows(b *testing.B) {
	db := open(b, "")
	for i := range 200 {
		create(b, db, &app.Machine{ID: fmt.Sprintf("m-%d", i), Name: fmt.Sprintf("node-%d", i)})
	}
	e := workflow.NewEngine(workflow.Config{Store: db})
	e.Register(workflow.Kind{Name: "act", Budget: time.Hour, Run: func(context.Context, workflow.StepContext) (any, error) { return nil, nil }})
	e.RegisterVerb(workflow.Verb{Name: "test", Version: 1})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	var steps []workflow.Step
	for i := range 5 {
		steps = append(steps, workflow.Step{ID: fmt.Sprintf("s%d", i), Kind: "act"})
	}
	for b.Loop() {
		var ids []string
		for i := range 200 {
			w, err := e.Start(ctx, workflow.New{Verb: "test", MachineID: fmt.Sprintf("m-%d", i), Steps: steps})
			if err != nil {
				b.Fatal(err)
			}
			ids = append(ids, w.ID)
		}
		for _, id := range ids {
			if w, err := e.Wait(ctx, id); err != nil || w.State != workflow.Done {
				b.Fatal(w, err)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
