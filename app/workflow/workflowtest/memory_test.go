package workflowtest

import "testing"

func memory(*testing.T) Backend { return NewMemory() }

func TestMemory(t *testing.T) { TestStore(t, memory) }

func TestKillsOnMemory(t *testing.T) { TestKills(t, memory) }
