// Package logging writes log lines without blocking the goroutine that logs.
//
// A handler formats a line and puts it into a bounded queue. One goroutine writes the queue to the
// target. If the target blocks, for example because a pipe is full, the queue fills. Further lines
// are then dropped and counted. Repeated warnings and errors are folded, and so are lines that
// report the end of a fault. The first of equal lines is written and starts a period. When the
// period ends, one line with the number of repetitions is written.
//
// The package imports only the standard library.
package logging
