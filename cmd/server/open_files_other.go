//go:build !unix

package main

// openFiles returns 0, which means unknown: this operating system does not report the maximum
// number of open files.
func openFiles() int { return 0 }
