// Package agent is the program in the ramdisk that does the appliance's work on a machine.
//
// It brings up the network, trades the boot token for a session, polls for signed commands, runs a handler for each, and
// reports progress and results until they are acknowledged. Its table of attempts, kept in /run, makes sure that no key
// runs twice, even when the agent itself dies and is started again. The appliance may be away for as long as it likes:
// work goes on and the result is delivered later.
//
// What a command does is the handlers' business: disk, wipe, inventory and boot each bring theirs; Main wires them.
package agent
