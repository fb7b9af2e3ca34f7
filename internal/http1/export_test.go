package http1

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
)

// Parse reads the line and the headers of a request as a connection does.
func Parse(path string, head []byte) (*http.Request, bool) {
	c := &conn{Conn: nowhere{}, server: &Server{Path: path}, ctx: context.Background()}
	ok := c.parse(head)
	return &c.parsed, ok
}

// nowhere is a connection without an end.
type nowhere struct{ net.Conn }

func (nowhere) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// Chunks returns the body in chunks that in has.
func Chunks(in io.Reader) io.Reader {
	return &chunks{in: bufio.NewReader(in), limit: math.MaxInt64}
}
