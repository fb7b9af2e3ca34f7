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

// Handler gives a handler that does what next does, and traces the requests
// that are sampled. A request with a traceparent belongs to the trace that it
// names.
//
// The span is named by method and route: "POST /v1/check". route is asked when
// next has answered, with the request that next was given; "" means that no
// route matched, and nil that there are none. It must give a pattern, never
// what the request filled in.
func (t *Tracer) Handler(next http.Handler, route func(*http.Request) string) http.Handler {
	if t == nil {
		return next
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)} // made once: most requests are not sampled
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, method(r), options...)
		if !span.IsRecording() {
			next.ServeHTTP(w, r) // without a span in its context nothing below is traced
			return
		}
		s := &status{ResponseWriter: w, code: http.StatusOK}
		r = r.WithContext(ctx)
		finished := false
		defer func() {
			if !finished {
				s.code = http.StatusInternalServerError // it panicked; net/http has the word
			}
			describe(span, r, s.code, route)
			span.End()
		}()
		next.ServeHTTP(s, r)
		finished = true
	})
}

// describe gives the span of an answered request its name and attributes.
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
	if code >= http.StatusInternalServerError { // 4xx is the caller's, 429 an answer like any other
		span.SetStatus(codes.Error, "")
		attributes = append(attributes, semconv.ErrorTypeKey.String(strconv.Itoa(code)))
	}
	span.SetAttributes(attributes...)
}

// method is the request's, or _OTHER: a method can be any text.
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

// status remembers the status code of an answer.
type status struct {
	http.ResponseWriter
	code    int
	written bool
}

// WriteHeader sends the status; the first that is no 1xx counts.
func (s *status) WriteHeader(code int) {
	if !s.written && code >= http.StatusOK {
		s.code, s.written = code, true
	}
	s.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the body, and the status 200 if there was none.
func (s *status) Write(b []byte) (int, error) {
	s.written = true
	return s.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController what can flush and set deadlines.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Flush sends what is written so far, for those that do not ask the controller.
func (s *status) Flush() {
	s.written = true
	_ = http.NewResponseController(s.ResponseWriter).Flush() // a writer that cannot has nothing to say
}
