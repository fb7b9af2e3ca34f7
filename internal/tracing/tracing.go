package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config configures a Tracer. With the zero value, tracing is off.
type Config struct {
	// Getenv returns the value of an environment variable. Default: tracing is off.
	Getenv func(string) string
	// Version is the release of the program, which each span contains. Default: "unknown".
	Version string
	// Logger logs lost spans, at most once a minute. Default: no logging.
	Logger *slog.Logger
	// Now returns the current time, from which the Tracer decides when to log lost spans. Spans use
	// their own clock. Default: time.Now.
	Now func() time.Time
}

// A Tracer traces requests. A nil Tracer is valid and traces nothing.
type Tracer struct {
	provider   *sdk.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TraceContext
}

// Start returns a Tracer, or nil if no endpoint is set. It sends nothing before the first span ends, so it succeeds
// even if the collector is unavailable. If a variable is invalid, the error names it.
func Start(ctx context.Context, cfg Config) (*Tracer, error) {
	if cfg.Getenv == nil {
		return nil, nil
	}
	env := environment(cfg.Getenv)
	endpoint, err := env.endpoint()
	if err != nil || endpoint == "" {
		return nil, err
	}
	sampler, err := env.sampler()
	if err != nil {
		return nil, err
	}
	cfg.Version = cmp.Or(cfg.Version, "unknown")
	res, err := env.resource(cfg.Version)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("open the trace exporter: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sampler), sdk.WithResource(res), sdk.WithSpanProcessor(newQueue(exporter, cfg.Logger, cfg.Now)))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/headgate/headgate/internal/tracing")}, nil
}

// Shutdown sends the queued spans and stops the Tracer. It returns at the latest when ctx ends. An error means that
// spans may be lost.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}
