package http1

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// keptAnswer is the maximum size of the response buffers that a connection keeps for its next
// response. Larger buffers are freed.
const keptAnswer = 16 << 10

// An answer is the http.ResponseWriter of a connection. It keeps the response in memory until the
// handler returns.
type answer struct {
	header http.Header
	status int // 0 until the handler sets a status
	body   []byte
	names  []string // the names in header, sorted
	wire   []byte   // the encoded response
}

func (a *answer) reset() {
	if a.header == nil || cap(a.body)+cap(a.wire) > keptAnswer {
		*a = answer{header: make(http.Header, 8)}
	}
	clear(a.header)
	a.status, a.body = 0, a.body[:0]
}

// Header returns the response headers.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader sets the status. Only the first call has an effect.
func (a *answer) WriteHeader(status int) {
	a.status = cmp.Or(a.status, status)
}

// Write appends to the body of the response.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)
	return len(b), nil
}

// encode returns the complete response in the format of HTTP/1.1. If last is true, the connection
// must be closed after this response.
func (a *answer) encode(now time.Time) (wire []byte, last bool) {
	a.WriteHeader(http.StatusOK)
	bodiless := a.status == http.StatusNoContent || a.status == http.StatusNotModified
	if bodiless {
		a.body = a.body[:0]
	}
	if _, ok := a.header["Content-Type"]; !ok && len(a.body) > 0 {
		a.header["Content-Type"] = []string{http.DetectContentType(a.body)}
	}
	b := append(a.wire[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(a.status)...)
	a.names = a.names[:0]
	for name := range a.header {
		a.names = append(a.names, name)
	}
	slices.Sort(a.names)
	for _, name := range a.names {
		switch name {
		case "Content-Length", "Date":
			continue
		case "Connection":
			last = slices.Contains(a.header[name], "close")
		}
		for _, value := range a.header[name] {
			b = appendHeader(b, name, value)
		}
	}
	b = append(b, "\r\nDate: "...)
	b = now.UTC().AppendFormat(b, http.TimeFormat)
	if !bodiless {
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(a.body)), 10)
	}
	b = append(b, "\r\n\r\n"...)
	a.wire = append(b, a.body...)
	return a.wire, last
}

// appendHeader appends a header line to b. It replaces each line break in the value with a space.
func appendHeader(b []byte, name, value string) []byte {
	b = append(b, "\r\n"...)
	b = append(b, name...)
	b = append(b, ": "...)
	from := len(b)
	b = append(b, value...)
	for i := from; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return b
}
