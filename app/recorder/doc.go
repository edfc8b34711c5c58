// Package recorder is the flight recorder: one timeline per machine of what its BMC was asked, what it loaded from the
// network, what its console printed, what its agent said and what workflows did with it; and the verdict, in one sentence,
// on how its boot stands.
//
// Record never blocks the one who tells, and never fails: a queue takes the records, one writer stores them in batches, and
// what comes faster than that is counted and left out. The store is a file of its own that may be lost: while it cannot be
// written, timelines are short, verdicts go on, and Fault tells the Health page.
//
// Facts are gathered from records by Add, and Judge is a pure function of them.
package recorder
