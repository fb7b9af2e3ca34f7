package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
)

// Counts say what the answers to checks were.
type Counts struct {
	// Allowed and Denied are checks with a decision.
	Allowed, Denied int64
	// Unavailable are checks with status 503: the node was overloaded, or no
	// limiter could decide.
	Unavailable int64
	// Degraded are checks, also counted above, that a policy's on_failure decided.
	Degraded int64
	// Failed are checks with another status, and those on a connection that failed.
	Failed int64
}

// Decided is the number of checks with a decision.
func (c *Counts) Decided() int64 { return c.Allowed + c.Denied }

func (c *Counts) add(o Counts) {
	c.Allowed += o.Allowed
	c.Denied += o.Denied
	c.Unavailable += o.Unavailable
	c.Degraded += o.Degraded
	c.Failed += o.Failed
}

var (
	statusMember = []byte(`"status":`)
	denied       = []byte(`"allowed":false`)
	degraded     = []byte(`"degraded":true`)
)

// count counts an answer to that many checks. Every item of a batch has its
// status in the body; one check has it in the status line. A denial has the
// member allowed, which the 403 of a wrong key lacks.
func (c *Counts) count(status int, body []byte, checks int) {
	if checks == 1 || status != 200 {
		c.item(status, bytes.Contains(body, denied), int64(checks))
	} else {
		found := 0
		for rest := body; found < checks; found++ {
			at := bytes.Index(rest, statusMember)
			if at < 0 || len(rest) < at+len(statusMember)+3 {
				break
			}
			rest = rest[at+len(statusMember):]
			code, _ := strconv.Atoi(string(rest[:3]))
			c.item(code, code == 429 || code == 403, 1)
		}
		c.Failed += int64(checks - found)
	}
	c.Degraded += int64(bytes.Count(body, degraded))
}

func (c *Counts) item(status int, isDenied bool, n int64) {
	switch {
	case status == 200 && !isDenied:
		c.Allowed += n
	case status == 503:
		c.Unavailable += n
	case isDenied:
		c.Denied += n
	default:
		c.Failed += n
	}
}

// An answer is what a connection read last. Its body is valid until the next read.
type answer struct {
	status int
	body   []byte
	last   bool // the server closes the connection
	buffer bytes.Buffer
}

// maxAnswer bounds a body: a batch of 1,000 checks with 10 limits each is smaller.
const maxAnswer = 16 << 20

var (
	errNotHTTP  = errors.New("the answer is not HTTP/1.1")
	errTooLarge = fmt.Errorf("an answer is larger than %d bytes", maxAnswer)
)

// read reads one answer whole.
func (a *answer) read(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return errNotHTTP
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return errNotHTTP
	}
	length, chunked := int64(0), false
	a.last = false
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return err
		}
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if len(name) == 0 {
			break
		}
		value = bytes.TrimSpace(value)
		switch {
		case named(name, "content-length"):
			if length, err = strconv.ParseInt(string(value), 10, 64); err != nil || length < 0 {
				return errNotHTTP
			}
		case named(name, "transfer-encoding"):
			chunked = true
		case named(name, "connection"):
			a.last = bytes.EqualFold(value, []byte("close"))
		}
	}
	return a.readBody(in, length, chunked)
}

// named reports whether a header has the name. Most headers differ in length,
// which is cheaper to compare.
func named(name []byte, want string) bool {
	return len(name) == len(want) && bytes.EqualFold(name, []byte(want))
}

func (a *answer) readBody(in *bufio.Reader, length int64, chunked bool) error {
	a.buffer.Reset()
	body := io.LimitReader(in, length)
	if chunked {
		body = httputil.NewChunkedReader(in)
	}
	n, err := a.buffer.ReadFrom(io.LimitReader(body, maxAnswer+1))
	a.body = a.buffer.Bytes()
	switch {
	case err != nil:
		return err
	case n > maxAnswer:
		return errTooLarge
	case chunked:
		_, err = in.ReadSlice('\n') // the empty line behind the last chunk
		return err
	case n < length:
		return io.ErrUnexpectedEOF
	}
	return nil
}
