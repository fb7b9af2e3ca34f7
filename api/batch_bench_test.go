package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkBatch is one whole POST /v1/check/batch, without the network.
func BenchmarkBatch(b *testing.B) {
	for _, c := range []struct {
		name   string
		checks int
	}{{"1", 1}, {"32", 32}, {"1000", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b)
			text := `{"checks":[` + strings.Repeat(login+",", c.checks-1) + login + `]}`
			r := httptest.NewRequest("POST", "/v1/check/batch", nil)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+w.operator)
			var in body
			r.Body, r.ContentLength = &in, int64(len(text))
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(text)
				w.api.ServeHTTP(discard{http.Header{}}, r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.checks), "ns/check")
		})
	}
}
