package tracing

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector receives spans over OTLP/HTTP, as a real one does.
type collector struct {
	*httptest.Server
	arrived chan struct{} // has one when a batch has arrived
	answer  chan struct{} // what the answers wait for, once it is set; closed to give them

	mu       sync.Mutex
	paths    []string
	bodies   bytes.Buffer
	spans    []*tracepb.Span
	resource map[string]string
}

func newCollector(t testing.TB) *collector {
	t.Helper()
	c := &collector{arrived: make(chan struct{}, 1), resource: map[string]string{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	if c.answer != nil {
		<-c.answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths = append(c.paths, r.URL.Path)
	c.bodies.Write(body)
	for _, rs := range request.ResourceSpans {
		for name, value := range values(rs.Resource.Attributes) {
			c.resource[name] = value
		}
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// values are attributes as text.
func values(attributes []*commonpb.KeyValue) map[string]string {
	found := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			found[a.Key] = v.StringValue
		default:
			found[a.Key] = a.Value.String()
		}
	}
	return found
}

// named finds the spans of a name.
func (c *collector) named(name string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one finds the only span of a name.
func (c *collector) one(t *testing.T, name string) *tracepb.Span {
	t.Helper()
	found := c.named(name)
	if len(found) != 1 {
		var names []string
		for _, s := range c.spans {
			names = append(names, s.Name)
		}
		t.Fatalf("%d spans are named %q, want 1; there are %q", len(found), name, names)
	}
	return found[0]
}

func id(b []byte) string { return hex.EncodeToString(b) }

// tracer starts a Tracer that sends to the collector what settings sample.
func (c *collector) tracer(t testing.TB, settings map[string]string) *Tracer {
	t.Helper()
	all := map[string]string{endpointVariable: c.URL, samplerVariable: "always_on"}
	for name, value := range settings {
		all[name] = value
	}
	tracer, err := Start(t.Context(), Config{Getenv: func(name string) string { return all[name] }, Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if tracer == nil {
		t.Fatal("an endpoint is set, and there is no tracer")
	}
	return tracer
}
