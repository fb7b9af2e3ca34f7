package tracing

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Handler returns a handler that calls next and traces sampled requests. A request
// with a traceparent header belongs to the trace in that header.
//
// The name of the span is the method and the route: "POST /v1/check". Handler calls
// route after next returns, with the request that next received. route returns a
// pattern without values of the request, or "" if no route matched. route may be
// nil.
func (t *Tracer) Handler(next http.Handler, route func(*http.Request) string) http.Handler {
	if t == nil {
		return next
	}
	// allocated here and not for each request, because most requests are not sampled
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, method(r), options...)
		if !span.IsRecording() {
			next.ServeHTTP(w, r) // without a span in its context, the request is not traced further
			return
		}
		s := &status{ResponseWriter: w, code: http.StatusOK}
		r = r.WithContext(ctx)
		finished := false
		defer func() {
			if !finished {
				s.code = http.StatusInternalServerError // next has panicked; net/http handles the panic
			}
			describe(span, r, s.code, route)
			span.End()
		}()
		next.ServeHTTP(s, r)
		finished = true
	})
}

// describe sets the name and the attributes of the span for a request, after the response.
func describe(span trace.Span, r *http.Request, code int, route func(*http.Request) string) {
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(method(r)),
		semconv.HTTPResponseStatusCode(code),
		semconv.URLScheme(scheme(r)),
		semconv.NetworkProtocolVersion(strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor)),
	}
	if route != nil {
		if pattern := route(r); pattern != "" {
			span.SetName(method(r) + " " + pattern)
			attributes = append(attributes, semconv.HTTPRoute(pattern))
		}
	}
	if code >= http.StatusInternalServerError { // 4xx, including 429, is not an error of the server
		span.SetStatus(codes.Error, "")
		attributes = append(attributes, semconv.ErrorTypeKey.String(strconv.Itoa(code)))
	}
	span.SetAttributes(attributes...)
}

// method returns the method of a request. It returns _OTHER for an unknown method, because a client can send any
// text.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	}
	return "_OTHER"
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// status is a ResponseWriter that records the status code of the response.
type status struct {
	http.ResponseWriter
	code    int
	written bool
}

// WriteHeader sends the status. The first code that is not 1xx is recorded.
func (s *status) WriteHeader(code int) {
	if !s.written && code >= http.StatusOK {
		s.code, s.written = code, true
	}
	s.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the body. Without an earlier WriteHeader, the status is 200.
func (s *status) Write(b []byte) (int, error) {
	s.written = true
	return s.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer. http.ResponseController needs it to flush and to set deadlines.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Flush sends the bytes written so far. Handlers that use http.Flusher call it.
func (s *status) Flush() {
	s.written = true
	_ = http.NewResponseController(s.ResponseWriter).Flush() // a writer that cannot flush is not an error
}
