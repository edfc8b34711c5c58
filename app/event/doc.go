// Package event is the audit trail and the bus: what happened is written to the store in batches and handed to whoever
// subscribed, in the order of their ids.
//
// Emit never blocks the one who tells. A full queue or a slow subscriber loses events, and is told how many.
package event
