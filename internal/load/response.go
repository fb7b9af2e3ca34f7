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

// Counts contains the numbers of checks by their result.
type Counts struct {
	// Allowed is the number of checks that were allowed, and Denied the number that were denied.
	Allowed, Denied int64
	// Unavailable is the number of checks with status 503: the node was overloaded, or no
	// limiter could decide.
	Unavailable int64
	// Degraded is the number of checks that a failure mode (on_failure) decided. These checks
	// are also counted in one of the fields above.
	Degraded int64
	// Failed is the number of checks with any other status, and of checks without a response
	// because the connection failed.
	Failed int64
}

// Decided returns the number of checks that were allowed or denied.
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

// count counts the response to a request. checks is the number of checks in the request. The body
// of the response to a batch has a status for each check. For a single check, the status is that of
// the response. count recognizes a denial by the member "allowed" in the body, because the 403
// response to an invalid key does not have this member.
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

// An answer is the response that was last read from a connection. Its body is valid until the next
// read.
type answer struct {
	status int
	body   []byte
	last   bool // the server closes the connection after this response
	buffer bytes.Buffer
}

// maxAnswer is the maximum size of a response body in bytes. The response to a batch of 1,000
// checks with 10 limits each is smaller.
const maxAnswer = 16 << 20

var (
	errNotHTTP  = errors.New("the answer is not HTTP/1.1")
	errTooLarge = fmt.Errorf("an answer is larger than %d bytes", maxAnswer)
)

// read reads one complete response from in.
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

// named reports whether name is the header name want; the case of letters does not matter. It first
// compares the lengths, which is fast, because most headers have another length.
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
		_, err = in.ReadSlice('\n') // reads the empty line after the last chunk
		return err
	case n < length:
		return io.ErrUnexpectedEOF
	}
	return nil
}
