package tracing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// blocked is an exporter that keeps its first batch until it is released.
type blocked struct {
	taken   chan struct{} // closed when it has a batch
	release chan struct{}
	sent    int
}

func (b *blocked) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	if b.sent == 0 {
		close(b.taken)
		<-b.release
	}
	b.sent += len(spans)
	return nil
}

func (*blocked) Shutdown(context.Context) error { return nil }

// Every span is sent or counted as lost, and no end of a span waits.
func TestAFullQueueDropsAndCounts(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := &blocked{taken: make(chan struct{}), release: make(chan struct{})}
	q := newQueue(b, slog.New(slog.NewTextHandler(&log, nil)), nil)
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(q))
	tracer := provider.Tracer("")
	ended := 0
	end := func() {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
		ended++
	}
	for taken := false; !taken; {
		end()
		select {
		case <-b.taken:
			taken = true
		default:
		}
	}
	for range 2 * maxQueued {
		end()
	}
	dropped := int(q.dropped.Load())
	if kept := 2*maxQueued - dropped; dropped == 0 || kept > maxQueued {
		t.Errorf("%d spans were kept and %d dropped, want %d kept at most", kept, dropped, maxQueued)
	}
	close(b.release)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.sent+dropped != ended {
		t.Errorf("%d spans were sent and %d dropped of %d", b.sent, dropped, ended)
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("want one line about them:\n%s", log.String())
	}
}

// failing is an exporter that always fails.
type failing struct{}

func (failing) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return errors.New("away") }
func (failing) Shutdown(context.Context) error                        { return nil }

func TestLostSpansAreToldOnceAMinute(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	now := time.Unix(1_800_000_000, 0)
	r := &reporting{SpanExporter: failing{}, log: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	batch := make([]sdk.ReadOnlySpan, 7)
	for _, after := range []time.Duration{0, time.Second, 58 * time.Second, time.Second, time.Second} {
		now = now.Add(after)
		if err := r.ExportSpans(t.Context(), batch); err != nil {
			t.Errorf("the error is told twice: %v", err)
		}
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "not_sent=7 no_room=0 error=away") || !strings.Contains(lines[1], "not_sent=21 ") {
		t.Errorf("want 7 spans, and 21 a minute later:\n%s", log.String())
	}
}
