package connlimit

import "time"

const (
	// stallTimeout is the maximum time in which a client must accept writePart bytes. Without it, a
	// client that stops reading would keep its connection until the write deadline of the whole
	// response.
	stallTimeout = 10 * time.Second
	writePart    = 16 << 10 // bytes
)

// Write sends b. It fails when the client accepts less than 16 kB within 10 seconds, or at the write
// deadline of the connection.
func (c *Conn) Write(b []byte) (n int, err error) {
	for {
		part := b[n:min(n+writePart, len(b))]
		deadline := time.Now().Add(c.listener.stall)
		if end := c.writeEnd.Load(); end != 0 && end < deadline.UnixNano() {
			deadline = time.Unix(0, end)
		}
		if err = c.Conn.SetWriteDeadline(deadline); err != nil {
			return n, err
		}
		sent, err := c.Conn.Write(part)
		if n += sent; err != nil || n == len(b) {
			return n, err
		}
	}
}

// SetDeadline sets the deadlines for reads and writes.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline for writes. It also applies to a write that is waiting.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	end := int64(0)
	if !t.IsZero() {
		end = t.UnixNano()
	}
	c.writeEnd.Store(end)
	return c.Conn.SetWriteDeadline(t)
}
