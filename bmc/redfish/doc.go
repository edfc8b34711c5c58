// Package redfish drives machines through their BMCs' Redfish services: power, boot override, virtual media, credentials,
// inspection and the enrolment probe.
//
// It stands on gofish's schema types, with its own layer below them for what real BMCs do: gofish drops a whole resource
// when one member has the wrong JSON type, follows redirects and links wherever they lead, and reads bodies without a
// limit. So requests go through a bounded client (client.go) that stays on the BMC's own origin, and documents are
// repaired until gofish's types accept them (decode.go), each repair a warning. The boot override, reset types and
// settings objects, which gofish offers in one form only, are decided here from facts (boot.go, power.go).
//
// One session per BMC is kept while it is used, and deleted when it idles, on Close and after every failure. A key that
// is not the pinned one ends the connection before a byte of a request is sent. Every write is read back.
package redfish
