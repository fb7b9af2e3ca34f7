package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// KeyPlace is a placeholder in a body. Each request has the number of a key in its
// place, with as many decimal digits as KeyPlace has bytes. All requests therefore have
// one length.
const KeyPlace = "########"

// MaxKeys is the number of keys that KeyPlace can number.
const MaxKeys = 100_000_000

// A Request is the bytes of a request, up to the numbers of its keys.
type Request struct {
	text   []byte
	places []int // of KeyPlace in text
	keys   int
}

// NewRequest prepares a POST of a JSON body in which each KeyPlace becomes a
// random number below keys. The header lines have the form "Name: value".
func NewRequest(host, path, body string, keys int, header ...string) Request {
	var head strings.Builder
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: %s\r\n", path, host)
	for _, line := range header {
		head.WriteString(line + "\r\n")
	}
	fmt.Fprintf(&head, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	r := Request{text: []byte(head.String() + body), keys: max(keys, 1)}
	for from := head.Len(); ; {
		at := bytes.Index(r.text[from:], []byte(KeyPlace))
		if at < 0 {
			return r
		}
		r.places = append(r.places, from+at)
		from += at + len(KeyPlace)
	}
}

// copy returns a deep copy of the request.
func (r Request) copy() Request {
	r.text = bytes.Clone(r.text)
	return r
}

// next draws keys and returns the bytes to send.
func (r Request) next(random *rand.Rand) []byte {
	for _, at := range r.places {
		key := random.IntN(r.keys)
		for i := at + len(KeyPlace) - 1; i >= at; i-- {
			r.text[i] = byte('0' + key%10)
			key /= 10
		}
	}
	return r.text
}
