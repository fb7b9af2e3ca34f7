package tracing

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// sampled calls a limiter as a sampled request does.
type sampled struct {
	next   enforcement.Limiter
	tracer trace.Tracer
}

func (s sampled) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	ctx, span := s.tracer.Start(ctx, "request")
	defer span.End()
	s.next.Take(ctx, requests, outcomes)
}

// A limiter that is traced keeps the contract.
func TestConformance(t *testing.T) {
	t.Parallel()
	tracer := newCollector(t).tracer(t, nil)
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	limitertest.Run(t, func(_ *testing.T, c *limitertest.Clock) limitertest.Fixture {
		return limitertest.Fixture{Limiter: sampled{tracer.Limiter(inprocess.New(inprocess.Config{Now: c.Now})), tracer.tracer}}
	})
}
