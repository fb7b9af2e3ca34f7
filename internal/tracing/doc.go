// Package tracing sends spans of sampled requests to an OpenTelemetry collector, over
// OTLP/HTTP. Tracing is off unless an endpoint is set.
//
// A request enters at the handler of Tracer.Handler, which starts a span if the
// request is sampled. The limiter of Tracer.Limiter starts a child span. Spans wait in
// a bounded queue, and a separate goroutine sends them. If the collector is slow or
// unavailable, spans are dropped; requests do not wait.
//
//	tracing.go         Start and Shutdown
//	settings.go        the environment variables of OpenTelemetry
//	http_handler.go    the span of a request
//	traced_limiter.go  the span of a call of the limiter
//	span_queue.go      the queue of ended spans, and the log of dropped spans
//
// A span has routes, methods, status codes and numbers. It never has a path, a query, a
// header, an address, an API key, a tenant, or a value that a limit counts by, because
// people who may read traces may not be allowed to read these.
package tracing
