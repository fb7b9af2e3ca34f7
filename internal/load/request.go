package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// KeyPlace is a placeholder for the number of a key. In the body of each request, a random number
// replaces it, with as many decimal digits as KeyPlace has bytes, so that all requests have the
// same length. In a header, it is replaced in the same way, by a random number of any value with
// these digits.
const KeyPlace = "########"

// MaxKeys is the maximum number of different keys: one for each number with the digits of KeyPlace.
const MaxKeys = 100_000_000

// A Request has the bytes of an HTTP request, and the positions at which the numbers of keys are
// inserted.
type Request struct {
	text   []byte
	places []int // positions of the placeholders in text
	header int   // number of places in headers, which are the first
	keys   int
}

// NewRequest returns a POST request with a JSON body. Each time it is sent, a random number below
// keys replaces each KeyPlace in the body. header contains lines of the form "Name: value".
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

// next returns the bytes of the request with new random keys.
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
