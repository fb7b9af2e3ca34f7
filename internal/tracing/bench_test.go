package tracing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// BenchmarkCheck is what tracing adds to a request that asks the in-process
// limiter once.
func BenchmarkCheck(b *testing.B) {
	c := newCollector(b)
	for _, sampler := range []string{"", "always_off", "always_on"} {
		name := map[string]string{"": "off", "always_off": "unsampled", "always_on": "sampled"}[sampler]
		b.Run(name, func(b *testing.B) {
			var tracer *Tracer
			if sampler != "" {
				tracer = c.tracer(b, map[string]string{samplerVariable: sampler})
			}
			l := tracer.Limiter(inprocess.New(inprocess.Config{}))
			requests, outcomes := charge(), make([]enforcement.Outcome, 1)
			h := tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l.Take(r.Context(), requests, outcomes)
				w.WriteHeader(http.StatusOK)
			}), checkRoute)
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/check", nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
			b.StopTimer()
			_ = tracer.Shutdown(context.Background())
		})
	}
}
