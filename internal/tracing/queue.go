package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// maxQueued is how many ended spans wait for the exporter at most: two for a
// check, each below a kilobyte.
const maxQueued = 2048

// reportEvery is the least time between two lines about lost spans.
const reportEvery = time.Minute

// A queue keeps ended spans until they are sent. It never waits: what does not
// fit is dropped and counted. OpenTelemetry's own batch processor does the
// work; it would drop as well, but tell nobody.
type queue struct {
	sdk.SpanProcessor // the batch processor, with room for maxQueued
	waiting           *atomic.Int64
	dropped           *atomic.Int64
}

func newQueue(exporter sdk.SpanExporter, log *slog.Logger, now func() time.Time) *queue {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	r := &reporting{SpanExporter: exporter, log: log, now: now}
	batches := sdk.NewBatchSpanProcessor(r, sdk.WithMaxQueueSize(maxQueued))
	return &queue{SpanProcessor: batches, waiting: &r.waiting, dropped: &r.dropped}
}

// OnEnd queues a span, or drops it.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > maxQueued {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// reporting is an exporter that tells of lost spans by itself, from the
// exporter's goroutine: a request that drops a span writes no log.
type reporting struct {
	sdk.SpanExporter
	log *slog.Logger
	now func() time.Time

	waiting atomic.Int64 // spans that were queued and not yet taken to be sent
	dropped atomic.Int64 // spans that found no room

	// Only the batch processor uses these, which sends one batch at a time.
	failed int64 // spans that could not be sent
	next   time.Time
}

// ExportSpans sends a batch. Its error ends here: nobody above could act on it.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	r.waiting.Add(-int64(len(spans)))
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		r.failed += int64(len(spans))
	}
	r.report(err)
	return nil
}

// report tells how many spans were lost since it last did, once a minute.
func (r *reporting) report(err error) {
	if r.failed == 0 && r.dropped.Load() == 0 {
		return
	}
	now := r.now()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(reportEvery)
	r.log.Warn("spans of traces were lost; requests are not concerned", "not_sent", r.failed, "no_room", r.dropped.Swap(0), "error", err)
	r.failed = 0
}
