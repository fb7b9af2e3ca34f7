package main

import (
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"
)

// A gate is the node's handler from its first to its last moment: before the
// node is wired it answers that it lives and is not ready; while it stops it
// goes on serving and tells clients not to keep their connections.
type gate struct {
	next     atomic.Pointer[http.Handler]
	draining atomic.Bool
}

// open lets requests through to h.
func (g *gate) open(h http.Handler) { g.next.Store(&h) }

// drain makes readiness say no and every answer close its connection.
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
		unavailable(w, "the node is starting: it waits for its database")
	}
}

// unavailable answers 503 with a problem. The detail has no character that JSON escapes.
func unavailable(w http.ResponseWriter, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	id := uuid.Must(uuid.NewV7()).String()
	w.Header().Set("X-Request-Id", id)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"kind":"problem","type":"/docs/problems/unavailable","title":"Unavailable","status":503,"detail":"` + detail +
		`","request_id":"` + id + `"}` + "\n"))
}
