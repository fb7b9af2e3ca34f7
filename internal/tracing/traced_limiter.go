package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/enforcement"
)

// Limiter returns a Limiter that calls l. A call whose context has a sampled span gets a span of
// its own. For any other call, the only additional work is to look for a span in the context.
func (t *Tracer) Limiter(l enforcement.Limiter) enforcement.Limiter {
	if t == nil {
		return l
	}
	return &limiter{next: l, tracer: t.tracer}
}

type limiter struct {
	next   enforcement.Limiter
	tracer trace.Tracer
}

func (l *limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		l.next.Take(ctx, requests, outcomes)
		return
	}
	_, span := l.tracer.Start(ctx, "limiter.take", trace.WithSpanKind(trace.SpanKindInternal))
	defer span.End() // also after a panic
	l.next.Take(ctx, requests, outcomes)
	count(span, outcomes)
}

// verdictKeys are the names of the span attributes that say how many requests have each verdict.
// Index 0 is for unknown verdicts.
var verdictKeys = func() [enforcement.Reused + 1]string {
	keys := [enforcement.Reused + 1]string{"headgate.limiter.undecided"}
	for v := enforcement.Granted; v <= enforcement.Reused; v++ {
		keys[v] = "headgate.limiter." + v.String()
	}
	return keys
}()

// count sets span attributes with the number of requests for each verdict. It adds no errors or charges, because they
// contain keys and addresses.
func count(span trace.Span, outcomes []enforcement.Outcome) {
	var counts [len(verdictKeys)]int
	failed := false
	for i := range outcomes {
		v := outcomes[i].Verdict
		if int(v) >= len(counts) {
			v = 0
		}
		counts[v]++
		failed = failed || !v.Decided()
	}
	attributes := make([]attribute.KeyValue, 0, len(counts)+1)
	attributes = append(attributes, attribute.Int("headgate.limiter.requests", len(outcomes)))
	for v, n := range counts {
		if n > 0 {
			attributes = append(attributes, attribute.Int(verdictKeys[v], n))
		}
	}
	span.SetAttributes(attributes...)
	if failed {
		span.SetStatus(codes.Error, "")
	}
}
