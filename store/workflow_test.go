package store

import (
	"testing"

	"github.com/better-compute/bcd/app/workflow/workflowtest"
)

func TestWorkflowStore(t *testing.T) {
	workflowtest.TestStore(t, func(t *testing.T) workflowtest.Backend { return open(t, "") })
}
