package tracing

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

const canary = "canary-5e1f"

var meter = enforcement.Limit{Name: "burst", Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Second, Burst: 10}.Compile(1)

// charge gives a request of the limiter that names the canary wherever it can.
func charge() []enforcement.Request {
	return []enforcement.Request{{
		Home:    canary,
		Lease:   enforcement.Lease{ID: enforcement.LeaseID(canary)},
		Charges: []enforcement.Charge{{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: meter, Rev: 1, Cost: 1}},
	}}
}

// checks is a handler that asks the limiter, as a check does.
func checks(l enforcement.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outcomes := make([]enforcement.Outcome, 1)
		l.Take(r.Context(), charge(), outcomes)
		switch outcomes[0].Verdict {
		case enforcement.Granted:
			w.WriteHeader(http.StatusOK)
		case enforcement.Refused:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(canary))
	})
}

func checkRoute(*http.Request) string { return "/v1/check" }

// ask plays a request that names the canary wherever it can.
func ask(h http.Handler, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/"+canary+"?q="+canary, strings.NewReader(`{"attributes":{"user":"`+canary+`"}}`))
	r.Host = canary + ".example.com"
	r.RemoteAddr = "203.0.113.77:4444"
	for _, name := range []string{"Authorization", "User-Agent", "X-Forwarded-For", "Cookie", "Baggage", "X-Request-Id"} {
		r.Header.Set(name, "a="+canary)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// lost is a limiter that cannot decide, and whose error says too much.
type lost struct{}

func (lost) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i] = enforcement.Outcome{Verdict: enforcement.Failed, Err: errors.New(canary)}
	}
}

func shutdown(t *testing.T, tracer *Tracer) {
	t.Helper()
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantAttributes(t *testing.T, span *tracepb.Span, want map[string]string) {
	t.Helper()
	got := values(span.Attributes)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s is %q, want %q", span.Name, name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: the attributes are %v, want the names of %v", span.Name, got, want)
	}
}

func TestASampledCheckGivesTwoSpans(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := c.tracer(t, nil)
	h := tracer.Handler(checks(tracer.Limiter(inprocess.New(inprocess.Config{}))), checkRoute)
	if w := ask(h); w.Code != http.StatusOK || w.Body.String() != canary {
		t.Errorf("answered %d %q, want the handler's own answer", w.Code, w.Body)
	}
	shutdown(t, tracer)
	server, child := c.one(t, "POST /v1/check"), c.one(t, "limiter.take")
	if id(child.TraceId) != id(server.TraceId) || id(child.ParentSpanId) != id(server.SpanId) {
		t.Error("the span of the limiter is not the child of the request's")
	}
	if len(server.ParentSpanId) > 0 {
		t.Error("a request without a traceparent has a parent")
	}
	if server.Kind != tracepb.Span_SPAN_KIND_SERVER || child.Kind != tracepb.Span_SPAN_KIND_INTERNAL {
		t.Errorf("the kinds are %s and %s", server.Kind, child.Kind)
	}
	wantAttributes(t, server, map[string]string{
		"http.request.method": "POST", "http.route": "/v1/check", "http.response.status_code": "int_value:200",
		"url.scheme": "http", "network.protocol.version": "1.1",
	})
	wantAttributes(t, child, map[string]string{"headgate.limiter.requests": "int_value:1", "headgate.limiter.granted": "int_value:1"})
	if server.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET || child.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the statuses are %s and %s, want none", server.Status, child.Status)
	}
}

func TestTraceparentIsHonoured(t *testing.T) {
	t.Parallel()
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c := newCollector(t)
	tracer := c.tracer(t, map[string]string{samplerVariable: "parentbased_always_off"})
	h := tracer.Handler(checks(tracer.Limiter(inprocess.New(inprocess.Config{}))), checkRoute)
	ask(h)                                                    // no parent: not sampled
	ask(h, "traceparent", "00-"+trace+"-"+parent+"-00")       // the parent is not sampled
	ask(h, "traceparent", "00-"+trace+"-0000000000000000-01") // no parent at all
	ask(h, "traceparent", "00-"+trace+"-"+parent+"-01")
	shutdown(t, tracer)
	server, child := c.one(t, "POST /v1/check"), c.one(t, "limiter.take")
	if id(server.TraceId) != trace || id(server.ParentSpanId) != parent || id(child.TraceId) != trace {
		t.Errorf("the span belongs to %s and %s, want %s and %s", id(server.TraceId), id(server.ParentSpanId), trace, parent)
	}
}

func TestNoSecretIsSent(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := c.tracer(t, nil)
	ask(tracer.Handler(checks(tracer.Limiter(inprocess.New(inprocess.Config{}))), checkRoute))
	ask(tracer.Handler(checks(tracer.Limiter(lost{})), checkRoute))
	ask(tracer.Handler(http.NotFoundHandler(), func(*http.Request) string { return "" }))
	r := httptest.NewRequest(canary, "/", nil)
	tracer.Handler(http.NotFoundHandler(), nil).ServeHTTP(httptest.NewRecorder(), r)
	shutdown(t, tracer)
	if len(c.spans) != 6 {
		t.Fatalf("%d spans were sent, want 6", len(c.spans))
	}
	for _, secret := range []string{canary, "203.0.113.77"} {
		if strings.Contains(c.bodies.String(), secret) {
			t.Errorf("%s was sent", secret)
		}
	}
	c.one(t, "POST") // no route: the path is no name
	c.one(t, "_OTHER")
}

func TestAFailureMarksBothSpans(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := c.tracer(t, nil)
	ask(tracer.Handler(checks(tracer.Limiter(lost{})), checkRoute))
	shutdown(t, tracer)
	server, child := c.one(t, "POST /v1/check"), c.one(t, "limiter.take")
	if server.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || child.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the statuses are %s and %s, want errors", server.Status, child.Status)
	}
	if got := values(server.Attributes)["error.type"]; got != "503" {
		t.Errorf("error.type is %q, want 503", got)
	}
	wantAttributes(t, child, map[string]string{"headgate.limiter.requests": "int_value:1", "headgate.limiter.failed": "int_value:1"})
}

func TestARefusalIsNoError(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := c.tracer(t, nil)
	h := tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTooManyRequests)
	}), checkRoute)
	ask(h)
	shutdown(t, tracer)
	server := c.one(t, "POST /v1/check")
	if got := values(server.Attributes)["http.response.status_code"]; got != "int_value:429" || server.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the status is %s, %s; want 429 and no error", got, server.Status)
	}
}

func TestAPanicIsASpanAndGoesOn(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := c.tracer(t, nil)
	h := tracer.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), checkRoute)
	func() {
		defer func() {
			if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // the value itself is what net/http compares
				t.Errorf("the panic became %v", got)
			}
		}()
		ask(h)
	}()
	shutdown(t, tracer)
	if got := c.one(t, "POST /v1/check").Status.GetCode(); got != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the status is %s, want an error", got)
	}
}

// What streams can still flush: by the controller, and by the older way.
func TestFlushingReachesTheConnection(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	tracer := c.tracer(t, nil)
	for name, flush := range map[string]func(http.ResponseWriter){
		"controller": func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"interface":  func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		if w := ask(tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { flush(w) }), nil)); !w.Flushed {
			t.Errorf("%s: nothing was flushed", name)
		}
	}
	shutdown(t, tracer)
}

// If the collector accepts a batch and does not answer, every request is still answered.
// Spans that do not fit the queue are dropped.
func TestACollectorThatHangsDelaysNothing(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.answer = make(chan struct{})
	tracer := c.tracer(t, nil)
	h := tracer.Handler(checks(tracer.Limiter(inprocess.New(inprocess.Config{}))), checkRoute)
	for hanging := false; !hanging; {
		ask(h)
		select {
		case <-c.arrived:
			hanging = true
		default:
		}
	}
	for range 2 * maxQueued { // two spans each: more than there is room for
		ask(h)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Shutdown(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown with an ended context: %v", err)
	}
	close(c.answer) // only now
}

func TestNothingIsTracedThatIsNotSampled(t *testing.T) { // not parallel: it counts allocations
	c := newCollector(t)
	tracer := c.tracer(t, map[string]string{samplerVariable: "always_off"})
	l, requests, outcomes := tracer.Limiter(lost{}), charge(), make([]enforcement.Outcome, 1)
	const own = 1 // the error of lost
	if n := testing.AllocsPerRun(100, func() { l.Take(t.Context(), requests, outcomes) }); n != own {
		t.Errorf("a call that is not sampled allocates %v times, and %v without tracing", n, own)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	tracer.Handler(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		if got != r {
			t.Error("a request that is not sampled was copied")
		}
	}), func(*http.Request) string { t.Error("the route was asked for"); return "" }).ServeHTTP(httptest.NewRecorder(), r)
	shutdown(t, tracer)
	if len(c.spans) > 0 {
		t.Errorf("%d spans were sent", len(c.spans))
	}
}

func TestOffCostsNothing(t *testing.T) {
	t.Parallel()
	tracer, err := Start(t.Context(), Config{})
	if err != nil || tracer != nil {
		t.Fatalf("got %v and %v, want nothing", tracer, err)
	}
	next, l := http.NewServeMux(), inprocess.New(inprocess.Config{})
	if tracer.Handler(next, nil) != http.Handler(next) || tracer.Limiter(l) != enforcement.Limiter(l) {
		t.Error("something was put around what was given")
	}
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
