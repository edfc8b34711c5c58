package secret

import "context"

// Use says for whom a secret is opened. The audit of the fetch carries it.
type Use struct {
	MachineID  string
	WorkflowID string
	StepID     string
	Actor      string // "" for the appliance itself
}

type useKey struct{}

// For gives a context under which secrets are opened for a use.
func For(ctx context.Context, u Use) context.Context { return context.WithValue(ctx, useKey{}, u) }

func useOf(ctx context.Context) Use {
	u, _ := ctx.Value(useKey{}).(Use)
	return u
}
