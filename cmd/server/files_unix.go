//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles returns how many files the process may open; 0 if that is not known.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // signed on FreeBSD
}
