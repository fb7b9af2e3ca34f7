//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles returns the maximum number of files that the process may open, or 0 if it is
// unknown.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // signed on FreeBSD
}
