package store

import (
	"testing"

	"github.com/better-compute/bcd/app/workflow/workflowtest"
)

func backend(t *testing.T) workflowtest.Backend { return open(t, "") }

func TestWorkflowStore(t *testing.T) { workflowtest.TestStore(t, backend) }

// The engine, killed at every instant, on a real database file.
func TestKills(t *testing.T) { workflowtest.TestKills(t, backend) }
