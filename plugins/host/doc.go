// Package host runs driver plugins for the appliance: it verifies each against its pin, starts it confined, speaks bcx with
// it, starts it again when it ends, and merges the drivers it serves into the registry.
//
// A plugin is a file of the plugins directory that the file "pins" names with its SHA-256, or one that is bundled in the
// appliance's own executable. What is executed is the open file that was hashed, never a path.
//
// Every plugin has a goroutine of its own (plugin.go) that takes it through its states: starting, running, backoff,
// refused, stopped. A plugin that is down keeps its drivers registered, shown as down, with the reason. Calls in flight
// when it ends fail with "unreachable", those that come while it is down with "unavailable" at once.
package host
