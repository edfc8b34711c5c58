// Package app holds the nouns of bcd: machines, images, subnets, users, events, and the error type that reaches people.
//
// It is a leaf: it imports the standard library only. Each file is one noun with its struct, its limits, its Validate and
// the interface of the store that keeps it. Adapters implement the interfaces, use cases call them.
package app
