package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// KeyPlace is a placeholder in the body of a request. Each request has the number of a
// random key instead, with as many decimal digits as KeyPlace has bytes. Therefore all
// requests have the same length. In a header, it becomes a random number of all its digits.
const KeyPlace = "########"

// MaxKeys is the number of keys that fit the digits of KeyPlace.
const MaxKeys = 100_000_000

// A Request has the bytes of an HTTP request, with placeholders for the numbers of
// keys.
type Request struct {
	text   []byte
	places []int // positions of the placeholders in text
	header int   // number of places in headers, which are the first
	keys   int
}

// NewRequest returns a POST request with a JSON body. In each request that is sent,
// each KeyPlace in the body becomes a random number below keys. The header lines have
// the form "Name: value".
func NewRequest(host, path, body string, keys int, header ...string) Request {
	var head strings.Builder
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: %s\r\n", path, host)
	for _, line := range header {
		head.WriteString(line + "\r\n")
	}
	fmt.Fprintf(&head, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	r := Request{text: []byte(head.String() + body), keys: max(keys, 1)}
	for from := 0; ; {
		at := bytes.Index(r.text[from:], []byte(KeyPlace))
		if at < 0 {
			return r
		}
		r.places = append(r.places, from+at)
		if from += at + len(KeyPlace); from < head.Len() {
			r.header++
		}
	}
}

// copy returns a deep copy of the request.
func (r Request) copy() Request {
	r.text = bytes.Clone(r.text)
	return r
}

// next returns the bytes of the next request, with new random keys.
func (r Request) next(random *rand.Rand) []byte {
	for i, at := range r.places {
		below := r.keys
		if i < r.header {
			below = MaxKeys
		}
		key := random.IntN(below)
		for i := at + len(KeyPlace) - 1; i >= at; i-- {
			r.text[i] = byte('0' + key%10)
			key /= 10
		}
	}
	return r.text
}
