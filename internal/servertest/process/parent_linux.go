package process

import "syscall"

// dieWithParent has the kernel send sig to the child when the thread that
// starts it ends, also when this process is killed and can clean up nothing.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
