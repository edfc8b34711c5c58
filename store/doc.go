// Package store keeps everything bcd remembers in one SQLite file. It is the only package that writes SQL.
//
// One connection writes, a few read. Every write goes through one group commit: callers that write at the same moment
// share a transaction and its fsync, each in a savepoint of its own, and none returns before its change is durable.
// Nouns are rows of a JSON document beside the columns that are searched or must be unique. Times in columns are
// microseconds since 1970 UTC, times in documents are RFC 3339 in UTC: neither depends on the zone of the process.
package store
