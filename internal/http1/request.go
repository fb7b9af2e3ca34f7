package http1

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// parse parses the request line and the headers of a request into c.parsed; head contains both. It
// returns false if their form is unusual, so that net/http must serve the request.
func (c *conn) parse(head []byte) bool {
	c.head = c.head[:0]
	line, rest, _ := strings.Cut(string(head), "\r\n")
	if line != "POST "+c.server.Path+" HTTP/1.1" {
		return false
	}
	c.url = url.URL{Path: c.server.Path}
	r := &http.Request{
		Method: http.MethodPost, URL: &c.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, 8), ContentLength: -1, RemoteAddr: c.RemoteAddr().String(), RequestURI: c.server.Path,
	}
	for rest != "\r\n" {
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !found || !isName(name) || !isValue(value) || !addHeader(r, http.CanonicalHeaderKey(name), value) {
			return false
		}
	}
	if r.Host == "" || r.ContentLength < 0 {
		return false
	}
	c.parsed = *r.WithContext(c.ctx)
	c.head = append(c.head, head...)
	return true
}

// addHeader adds a header to r. It returns false if only net/http can handle the header. An
// example is a header that decides where the body or the response ends.
func addHeader(r *http.Request, name, value string) bool {
	switch name {
	case "Host":
		if r.Host != "" || !isHost(value) {
			return false
		}
		r.Host = value // like net/http, which does not put Host into Header
		return true
	case "Content-Length":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || r.ContentLength >= 0 {
			return false
		}
		r.ContentLength = int64(n)
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") || r.Header[name] != nil {
			return false
		}
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Keep-Alive", "Proxy-Connection", "Http2-Settings", "Pragma":
		return false
	}
	r.Header[name] = append(r.Header[name], value)
	return true
}

// isName reports whether s is a header name with only letters, digits, - and _.
func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// isValue reports whether s has only printable ASCII characters and tabs.
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}

// isHost reports whether s has only characters of names, addresses and ports.
func isHost(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("-._:[]", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
