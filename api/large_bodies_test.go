package api_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/admission"
)

// A tenant whose clients send large bodies slowly uses a bounded part of the memory of a node.
// Further large bodies of the tenant get status 503. Small bodies, and bodies of other callers,
// are read. A body that is only announced uses no memory.
func TestLargeBodiesAreBounded(t *testing.T) {
	t.Parallel()
	bodies := new(admission.Bodies)
	w := newWorld(t, func(c *api.Config) { c.Bodies = bodies })
	const size = 1 << 20
	head := `{"checks": [{"attributes": {"user": "u1"}}`
	whole := head + strings.Repeat(" ", size-len(head)-2) + "]}"
	batch := func(key string, body io.Reader) answer {
		r := w.request(call{method: "POST", path: "/v1/check/batch", key: key, body: whole})
		r.Body = io.NopCloser(body)
		return w.send(r)
	}
	var slow sync.WaitGroup
	var ends []io.Closer
	hang := func(sent string) {
		out, in := io.Pipe()
		ends = append(ends, in)
		slow.Go(func() {
			if a := batch(w.acmeCheck, out); a.status != http.StatusBadRequest {
				t.Errorf("a body that ends early: %d %s", a.status, a.body)
			}
		})
		_, _ = io.WriteString(in, sent) // returns when the server has read so far
	}
	for range 100 {
		hang("")
	}
	if n := bodies.Held(); n != 0 {
		t.Errorf("bodies that were only announced hold %d bytes", n)
	}
	for range admission.MaxBodiesEach / size {
		hang(whole[:size-1])
	}
	if n := bodies.Held(); n > admission.MaxBodiesEach || n < admission.MaxBodiesEach/2 {
		t.Errorf("a tenant holds %d bytes, want about %d", n, admission.MaxBodiesEach)
	}
	a := batch(w.acmeCheck, strings.NewReader(whole))
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "as many large bodies") {
		t.Errorf("a large body of the tenant: %d %v %s", a.status, a.header, a.body)
	}
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.acmeCheck, body: `{}`}); a.status != http.StatusOK {
		t.Errorf("a check of the tenant: %d %s", a.status, a.body)
	}
	other := strings.Replace(whole, `{"attributes"`, `{"tenant": "acme", "attributes"`, 1)
	if a := batch(w.operator, strings.NewReader(strings.Replace(other, strings.Repeat(" ", 18), "", 1))); a.status != http.StatusOK {
		t.Errorf("a large body of another caller: %d %s", a.status, a.body)
	}
	for _, end := range ends {
		_ = end.Close()
	}
	slow.Wait()
	if a := batch(w.acmeCheck, strings.NewReader(whole)); a.status != http.StatusOK {
		t.Errorf("a large body afterwards: %d %s", a.status, a.body)
	}
	if n := bodies.Held(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
}
