// Package tracing sends what a few requests went through to a collector of
// OpenTelemetry, over OTLP/HTTP. It is off unless an endpoint is set.
//
// A request comes in at what Tracer.Handler gives, which opens a span when the
// request is sampled, and meets what Tracer.Limiter gives, which opens the
// child of that span. Spans go out from a queue of bounded length, by a
// goroutine of their own: a collector that is slow or away costs spans, never
// time of a request.
//
//	tracing.go   Start and Shutdown
//	settings.go  the environment variables, which are those of OpenTelemetry
//	handler.go   the span of a request
//	limiter.go   the span of a call of the limiter
//	queue.go     what bounds the queue, and tells of lost spans
//
// A span names routes, methods, status codes and numbers. It never holds a
// path, a query, a header, an address, a key, a tenant or a value that a limit
// counts by: whoever may read traces need not be whoever may read those.
package tracing
