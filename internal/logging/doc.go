// Package logging writes log lines without blocking the goroutine that logs.
//
// A handler formats a line and puts it into a bounded queue. One goroutine
// writes the queue to the target. If the target blocks, for example a full
// pipe, the queue fills and further lines are dropped and counted. Repeated
// warnings and errors, and lines that report the end of a fault, are folded: within a period the first one is written,
// and one line with the number of repetitions follows when the period ends.
//
// The package imports only the standard library.
package logging
