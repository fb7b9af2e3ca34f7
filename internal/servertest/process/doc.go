// Package process finds, installs, starts and stops the real servers that the
// tests use: Postgres and Redis, each private to whoever started it, on a free
// loopback port, with its files in a folder of its own.
//
// It needs the standard library only, so the command that surrounds the tests
// builds in a moment. Package servertest puts it into a test's hands.
//
// A server that was started here does not outlive the process that started it:
// Stop ends it, and where nobody came to call Stop the kernel does (on Linux).
// Nothing here ends a process that it did not start.
package process
