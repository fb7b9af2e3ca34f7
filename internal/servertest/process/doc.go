// Package process finds, installs, starts and stops the real servers that the tests use:
// Postgres and Redis. Each server is private to the process that started it. It listens
// on a free loopback port and has a separate folder.
//
// The package imports only the standard library, so that the command with-servers builds
// quickly. Tests use package servertest instead of this one.
//
// A server ends with the process that started it: Stop ends it, or on Linux the kernel
// ends it if the process dies before Stop. The package ends no other processes.
package process
