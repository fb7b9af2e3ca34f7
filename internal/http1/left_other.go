//go:build !linux

package http1

import "net"

type peeker struct{}

func newPeeker(net.Conn) *peeker { return &peeker{} }

// Left returns false: the write of the answer finds that the client has left.
func (*peeker) Left() bool { return false }
