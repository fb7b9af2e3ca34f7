package resp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/connlimit"
)

// A conn is one connection of a client.
type conn struct {
	net.Conn
	server  *Server
	limited *connlimit.Conn // nil if the listener does not count connections
	replies

	from  netip.Addr
	token string // the API key of the last AUTH or HELLO, or ""
	buf   []byte // the first "have" bytes are received and not yet processed
	have  int
	spans []span // the arguments of the commands in buf
	ends  []int  // for each command in buf, the index in spans after its last argument
	args  []string
	batch *batch // the checks that wait for a decision; nil if there are none
	quit  bool   // set by QUIT: ignore further commands, send the replies, and close the connection
}

// Sizes of the buffer for received bytes. It begins with minBuffer bytes, and grows until it can hold a command. shrink
// and flush release large buffers.
const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10
	maxBatch  = 1000 // checks that are decided together
)

// serve answers commands until the client closes the connection or Shutdown is called.
func (c *conn) serve() {
	if c.limited != nil && c.limited.Reserved() {
		c.fail("ERR max number of clients reached")
		c.flush()
		return
	}
	c.buf = make([]byte, minBuffer)
	for first := true; !c.quit; first = false {
		used, ok := c.receive(first)
		if !ok {
			break
		}
		// The arguments are parts of this copy of the buffer. A recorded decision keeps arguments after the buffer is overwritten.
		c.answer(string(c.buf[:used]))
		c.have = copy(c.buf, c.buf[used:c.have])
		if !c.flush() {
			return
		}
	}
	c.flush()
}

// receive waits until at least one command is complete, and returns the number of bytes of all complete commands. If
// the connection ends, it returns false. first is set for the first command of the connection.
func (c *conn) receive(first bool) (used int, ok bool) {
	var deadline time.Time // deadline for the whole command; further bytes do not extend it
	for {
		if used, ok = c.split(); !ok || used > 0 {
			return used, ok
		}
		if first || c.have > 0 {
			if deadline.IsZero() {
				deadline = time.Now().Add(firstTimeout)
			}
		} else {
			c.shrink()
			if c.limited != nil {
				c.limited.Idle()
			}
		}
		if !c.server.wait(c, deadline) {
			return 0, false
		}
		if c.have == len(c.buf) {
			if c.token == "" { // Redis also rejects this; so clients without a key occupy little memory
				c.fail("ERR the command is too long for a client that has not sent AUTH")
				return 0, false
			}
			c.buf = append(c.buf, make([]byte, len(c.buf))...) // the growth is bounded, because split rejects a command that is too long
		}
		n, err := c.Read(c.buf[c.have:])
		if c.limited != nil && !c.limited.Busy() {
			return 0, false
		}
		c.have += n
		if err != nil && n == 0 {
			if c.have > 0 && !deadline.IsZero() && !time.Now().Before(deadline) {
				c.fail(fmt.Sprintf("ERR protocol error: a command must be complete %d seconds after its first byte", firstTimeout/time.Second))
			}
			return 0, false
		}
		first = false
	}
}

// shrink replaces a large buffer by a small one before the connection becomes idle.
func (c *conn) shrink() {
	if len(c.buf) > maxBuffer/4 {
		c.buf = make([]byte, minBuffer)
	}
}

// split finds at most maxBatch complete commands in the buffer, and returns the number of their bytes. If the buffer starts with
// bytes that are not a valid command, split appends an error reply and returns false.
func (c *conn) split() (used int, ok bool) {
	c.spans, c.ends = c.spans[:0], c.ends[:0]
	for used < c.have && len(c.ends) < maxBatch {
		spans, n, err := parse(c.buf[used:c.have], used, c.spans)
		if err != nil {
			if used > 0 {
				return used, true // the next call of split reports the error, after the replies to these commands
			}
			c.fail("ERR " + err.Error())
			return 0, false
		}
		if n == 0 {
			break
		}
		used += n
		c.spans, c.ends = spans, append(c.ends, len(spans))
	}
	return used, true
}

// answer runs the commands in text and appends their replies.
func (c *conn) answer(text string) {
	from := 0
	for _, end := range c.ends {
		c.args = c.args[:0]
		for _, s := range c.spans[from:end] {
			c.args = append(c.args, text[s.from:s.end])
		}
		from = end
		if len(c.args) > 0 && !c.quit { // Redis ignores empty commands
			c.run(c.args[0], c.args[1:])
		}
	}
	c.decide()
	c.args = slices.Delete(c.args, 0, len(c.args))
}

// flush writes the replies. It returns false if the client does not read them in time.
func (c *conn) flush() bool {
	if len(c.out) == 0 {
		return true
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > maxBuffer {
		c.out = nil
	}
	return err == nil
}

// context returns the context for a decision. It is not canceled when the client closes the connection, because replies to other commands
// of the pipeline may still be sent.
func (*conn) context() context.Context { return context.Background() }
