package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/metrics"
)

// BenchmarkCountingOnOff measures a whole POST /v1/check, without the network, with and
// without counting. x-off is the time with counting divided by the time without. The two
// run in turns, so that other load of the machine affects both.
func BenchmarkCountingOnOff(b *testing.B) {
	world := func(recorder enforcement.Recorder) *world {
		return newWorld(b, func(cfg *api.Config) {
			limiter := inprocess.New(inprocess.Config{Now: start.UnixMicro})
			cfg.Decider = enforcement.NewEngine(limiter, enforcement.Config{Recorder: recorder})
		})
	}
	off, on := world(nil), world(metrics.NewRecorder(metrics.Config{}))
	for _, c := range []struct{ name, body string }{
		{"allowed", `{"tenant": "acme", "method": "GET", "path": "/v1/search", "attributes": {"user": "u1"}, "cost": 0}`},
		{"login", login}, // denied by a limit after the first few
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2]time.Duration
			handlers := [2]func(){checker(off, c.body), checker(on, c.body)}
			const turn = 200
			for b.Loop() {
				for i, check := range handlers {
					began := time.Now()
					for range turn {
						check()
					}
					took[i] += time.Since(began)
				}
			}
			checks := float64(b.N) * turn
			b.ReportMetric(float64(took[0])/checks, "off-ns/check")
			b.ReportMetric(float64(took[1])/checks, "on-ns/check")
			b.ReportMetric(float64(took[1])/float64(took[0]), "x-off")
		})
	}
}

// checker returns a function that sends a check with an operator key.
func checker(w *world, text string) func() {
	r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.operator)
	b := new(body)
	r.Body, r.ContentLength = b, int64(len(text))
	return func() {
		b.Reset(text)
		w.api.ServeHTTP(discard{http.Header{}}, r)
	}
}
