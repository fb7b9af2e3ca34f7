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

// settings applies the settings of the client.
func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if f.NumSettings() > 100 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := f.ForeachSetting(c.set); err != nil {
		return err
	}
	return c.framer.WriteSettingsAck()
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
		c.opened.Broadcast()
		for len(c.waiting) > 0 && c.window > 0 {
			s := c.streams[c.waiting[0]]
			c.waiting = c.waiting[1:]
			if s != nil {
				s.waits = false
				c.resume(s)
			}
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
	}
	return nil
}

// flush writes what waits in c.out.
func (c *conn) flush() {
	c.mu.Lock()
	c.write()
	c.mu.Unlock()
}

// write sends the bytes in c.out to the client. If another goroutine is already in write, that
// goroutine sends them. The caller holds c.mu. write releases c.mu during the system call.
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
			_ = c.socket.Close() // ends serve
		}
	}
	c.out.writing = false
	if c.draining {
		c.idle()
	}
}
