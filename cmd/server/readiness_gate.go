package main

import (
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/headgate/headgate/api"
)

// A gate is the handler of the listener. Until open is called, it answers /livez with 200 and most
// other requests with 503. It closes the connection of a request for forward authentication,
// because a gateway would treat a 503 as a denial. After a closed connection, a gateway asks
// another node or applies its failure mode. After drain is called, the gate still serves requests,
// but closes each connection after the response.
type gate struct {
	next     atomic.Pointer[http.Handler]
	draining atomic.Bool
}

// open makes the gate pass all further requests to h.
func (g *gate) open(h http.Handler) { g.next.Store(&h) }

// drain makes readiness checks fail, and sets the header Connection: close in every response.
func (g *gate) drain() { g.draining.Store(true) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	if next := g.next.Load(); next != nil {
		(*next).ServeHTTP(w, r)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch r.URL.Path {
	case "/livez", "/healthz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	default:
		if api.IsForwardAuth(r.URL.Path) {
			panic(http.ErrAbortHandler)
		}
		unavailable(w, "the node is starting: it waits for its database")
	}
}

// unavailable writes a 503 response that is a problem. detail must not contain characters that need
// an escape in JSON.
func unavailable(w http.ResponseWriter, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	id := uuid.Must(uuid.NewV7()).String()
	w.Header().Set("X-Request-Id", id)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"kind":"problem","type":"/docs/problems/unavailable","title":"Unavailable","status":503,"detail":"` + detail +
		`","request_id":"` + id + `"}` + "\n"))
}
