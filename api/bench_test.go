package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/tenants"
)

// discard is a response that nobody reads.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

type body struct{ strings.Reader }

func (*body) Close() error { return nil }

// BenchmarkCheck is one whole POST /v1/check, without the network.
func BenchmarkCheck(b *testing.B) {
	w := newWorld(b)
	benchmarkCheck(b, w, w.operator)
}

// BenchmarkWrongKey is what a flood of keys costs that are formed like real
// ones: a hash and a look in a map, and then the 401.
func BenchmarkWrongKey(b *testing.B) {
	benchmarkCheck(b, newWorld(b), tenants.NewToken(tenants.OperatorToken))
}

// BenchmarkMistypedKey is the same for keys that are not: no hash, no map.
func BenchmarkMistypedKey(b *testing.B) {
	w := newWorld(b)
	benchmarkCheck(b, w, w.operator[:len(w.operator)-1]+"!")
}

func benchmarkCheck(b *testing.B, w *world, key string) {
	b.Helper()
	r := httptest.NewRequest("POST", "/v1/check", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	var text body
	r.Body, r.ContentLength = &text, int64(len(login))
	b.ReportAllocs()
	for b.Loop() {
		text.Reset(login)
		w.api.ServeHTTP(discard{http.Header{}}, r)
	}
}
