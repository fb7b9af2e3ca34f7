package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config of a Tracer; the zero value is one that is off.
type Config struct {
	// Getenv reads the environment. Default: nothing is set, so tracing is off.
	Getenv func(string) string
	// Version of the program, for the resource. Default "unknown".
	Version string
	// Logger hears of lost spans, once a minute at most. Default: none.
	Logger *slog.Logger
	// Now is the clock of that minute; spans have their own. Default time.Now.
	Now func() time.Time
}

// A Tracer traces requests. A nil Tracer is one that is off: its methods do
// nothing and cost nothing.
type Tracer struct {
	provider   *sdk.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TraceContext
}

// Start makes a Tracer, nil when no endpoint is set. Nothing is sent before the
// first span ends, so a collector that is away is no error; a variable that
// cannot be understood is one that names it.
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
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	res, err := env.resource(cfg.Version)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sampler), sdk.WithResource(res), sdk.WithSpanProcessor(newQueue(exporter, cfg.Logger, cfg.Now)))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/headgate/headgate/internal/tracing")}, nil
}

// Shutdown sends what is queued and ends the Tracer; it returns no later than
// the context's end. An error says that spans may have been lost.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}
