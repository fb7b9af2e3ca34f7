package http2

import "golang.org/x/net/http2"

// An output collects the bytes of frames.
type output struct {
	b       []byte
	spare   []byte
	writing bool
}

// Write appends p.
func (o *output) Write(p []byte) (int, error) {
	o.b = append(o.b, p...)
	return len(p), nil
}

// set applies a setting of the client.
func (c *conn) set(setting http2.Setting) error {
	if err := setting.Valid(); err != nil {
		return err
	}
	switch setting.ID {
	case http2.SettingMaxFrameSize:
		c.frame = int(min(setting.Val, 1<<20))
	case http2.SettingInitialWindowSize:
		more := int64(setting.Val) - c.initial
		c.initial = int64(setting.Val)
		for _, s := range c.streams {
			if s.window += more; s.window > maxWindow {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
			c.resume(s)
		}
	}
	return nil
}

func (c *conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		for _, s := range c.streams {
			if c.window <= 0 {
				break
			}
			c.resume(s)
		}
		return nil
	}
	s := c.streams[f.StreamID]
	switch {
	case s != nil:
		if s.window += int64(f.Increment); s.window > maxWindow {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
		}
		c.resume(s)
	case f.StreamID > c.last:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	default: // the stream has ended
		c.noise++
	}
	return nil
}

// flush writes what waits in c.out.
func (c *conn) flush() {
	c.mu.Lock()
	c.write()
	c.mu.Unlock()
}

// write writes what waits in c.out. If another goroutine writes already, that goroutine writes it. The caller holds c.mu, which is
// released during the system call.
func (c *conn) write() {
	if c.out.writing {
		return
	}
	c.out.writing = true
	for len(c.out.b) > 0 && !c.closed {
		b := c.out.b
		c.out.b = c.out.spare[:0]
		c.mu.Unlock()
		_, err := c.Conn.Write(b)
		c.mu.Lock()
		if c.out.spare = b[:0]; cap(b) > readBuffer {
			c.out.spare = nil
		}
		c.room.Broadcast()
		if err != nil {
			c.closed = true
			_ = c.Conn.Close() // ends serve
		}
	}
	c.out.writing = false
}
