//go:build !linux

package process

import "syscall"

// dieWithParent does nothing, because only Linux can send a child a signal when its parent ends. If
// the parent is killed, the server continues to run.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
