package process

import "syscall"

// dieWithParent makes the kernel send sig to the child when the thread that starts it
// ends, even if this process is killed.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
