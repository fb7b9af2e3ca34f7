package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/enforcement"
)

// Limiter gives a Limiter that does what l does, and traces the calls whose
// context holds a span that is sampled. For the others it does nothing more:
// it does not even look at a clock.
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
	defer span.End() // also when it panics
	l.next.Take(ctx, requests, outcomes)
	count(span, outcomes)
}

// verdictKeys name the attributes by verdict; place 0 has what is none.
var verdictKeys = func() [enforcement.Unknown + 1]string {
	keys := [enforcement.Unknown + 1]string{"headgate.limiter.undecided"}
	for v := enforcement.Granted; v <= enforcement.Unknown; v++ {
		keys[v] = "headgate.limiter." + v.String()
	}
	return keys
}()

// count says how the requests ended, in numbers: an Outcome's error and the
// charges name keys and addresses.
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
