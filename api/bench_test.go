package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
	r := httptest.NewRequest("POST", "/v1/check", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.operator)
	var text body
	r.Body, r.ContentLength = &text, int64(len(login))
	b.ReportAllocs()
	for b.Loop() {
		text.Reset(login)
		w.api.ServeHTTP(discard{http.Header{}}, r)
	}
}
