// Package workflowtest holds what every implementation around the workflow engine is tested with: the conformance suite
// of workflow.Store, a store in memory that passes it, a fake of the machines' agents, and a Killer that stops a process
// at a chosen instant, so that tests can count what happened before and after.
package workflowtest
