package tracing

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// maxQueued is the maximum number of spans that have ended and wait to be sent. A check has two
// spans, each smaller than a kilobyte.
const maxQueued = 2048

// reportEvery is the minimum time between two log lines about lost spans.
const reportEvery = time.Minute

// A queue stores ended spans until they are sent. A queue never blocks: if it is full, it drops and
// counts further spans. It wraps the batch processor of OpenTelemetry, which also drops spans but
// does not report them.
type queue struct {
	sdk.SpanProcessor // the batch processor of OpenTelemetry, with room for maxQueued spans
	waiting           *atomic.Int64
	dropped           *atomic.Int64
}

func newQueue(exporter sdk.SpanExporter, log *slog.Logger, now func() time.Time) *queue {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
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

// A reporting is an exporter that logs how many spans were dropped. It logs in the goroutine of the
// exporter, so that a request whose span is dropped need not write a log line.
type reporting struct {
	sdk.SpanExporter
	log *slog.Logger
	now func() time.Time

	waiting atomic.Int64 // spans in the queue
	dropped atomic.Int64 // spans that did not fit

	// Only ExportSpans uses these fields. The batch processor calls it for one batch at a
	// time.
	failed int64 // number of spans that could not be sent
	next   time.Time
}

// ExportSpans sends a batch. If this fails, it logs the error and returns nil, because no caller
// can handle the error.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	r.waiting.Add(-int64(len(spans)))
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		r.failed += int64(len(spans))
	}
	r.report(err)
	return nil
}

// report logs how many spans were lost since the last report, at most once a minute.
func (r *reporting) report(err error) {
	if r.failed == 0 && r.dropped.Load() == 0 {
		return
	}
	now := r.now()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(reportEvery)
	r.log.Warn("tracing: spans were lost; requests are not affected", "not_sent", r.failed, "no_room", r.dropped.Swap(0), "error", err)
	r.failed = 0
}
