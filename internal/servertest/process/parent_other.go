//go:build !linux

package process

import "syscall"

// dieWithParent does nothing here: only Linux has a parent's death signal. A
// server outlives a parent that was killed, until somebody ends it.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
