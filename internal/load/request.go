package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// KeyPlace is the placeholder for a random number in a Request. Each time the request is sent,
// a random number with as many decimal digits as KeyPlace has bytes replaces it, so that all
// requests have the same length. In the body, the number is below the number of keys of the
// request. In a header, it can have any value with these digits.
const KeyPlace = "########"

// MaxKeys is the maximum number of different keys: the number of values that the digits of KeyPlace
// can have.
const MaxKeys = 100_000_000

// A Request contains the bytes of an HTTP request, and the positions at which random numbers
// are inserted.
type Request struct {
	text   []byte
	places []int // positions of each KeyPlace in text
	header int   // number of places that are in headers; they come first in places
	keys   int
}

// NewRequest returns a POST request with a JSON body. Each time the request is sent, a random
// number below keys replaces each KeyPlace in the body. header contains lines of the form
// "Name: value".
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

// next inserts new random numbers into the request and returns its bytes. They are valid until
// the next call.
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
