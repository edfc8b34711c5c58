// Package host is the jump host that bcd runs on: what to check before it starts, and how it is installed.
//
// Every root of the file system is a parameter, so that tests run on file trees.
package host
