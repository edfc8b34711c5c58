package workflowtest

import "testing"

func TestMemory(t *testing.T) {
	TestStore(t, func(*testing.T) Backend { return NewMemory() })
}
