package redis

import (
	"net"
	"testing"
	"time"
)

// A stalledConn writes when its process has lost the processor for a while.
type stalledConn struct {
	net.Conn
	stall time.Duration
}

func (s stalledConn) Write(b []byte) (int, error) {
	<-time.After(s.stall)
	return s.Conn.Write(b)
}

// A write that begins after the deadline of an answer is made all the same.
func TestWriteAfterAStall(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = far.Read(make([]byte, 8)) }()
	c := &conn{Conn: stalledConn{near, 150 * time.Millisecond}, patience: 100 * time.Millisecond}
	if n, err := c.Write([]byte("call")); n != 4 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
