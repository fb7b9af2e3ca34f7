//go:build !linux

package process

import "syscall"

// dieWithParent does nothing, because only Linux has a death signal of the parent. A
// server continues to run if its parent is killed.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
