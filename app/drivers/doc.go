// Package drivers knows which drivers there are and which of them serves a machine.
//
// The Registry holds definitions, built-in ones and plugins', and gives the active version of each id. Bindings say by
// kind which driver serves a machine, in three layers: the enrolled BMC, the hardware profile, the machine itself; each
// value keeps the name of the layer it came from. For makes the bound drivers callable: it fills in the connection
// facts, resolves credentials, and lets one call at a time through to each BMC. Journaling a call is the caller's part,
// as is permission.
package drivers
