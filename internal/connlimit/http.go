package connlimit

import (
	"context"
	"net"
	"net/http"
)

// ConnState records whether a connection is idle. Set it as the field ConnState of an
// http.Server.
func (l *Listener) ConnState(c net.Conn, state http.ConnState) {
	if own := find(c); own != nil {
		switch state {
		case http.StateActive:
			own.Busy()
		case http.StateIdle:
			own.Idle()
		}
	}
}

// find returns the Conn inside a TLS connection or another wrapper, or nil if there is
// none.
func find(c net.Conn) *Conn {
	for c != nil {
		if own, ok := c.(*Conn); ok {
			return own
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
	return nil
}

type reservedKey struct{}

// ConnContext stores the connection in the context of its requests, for Handler. Set it
// as the field ConnContext of an http.Server.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if own := find(c); own != nil && own.reserved {
		return context.WithValue(ctx, reservedKey{}, true)
	}
	return ctx
}

// Handler returns a handler that passes requests to next. On connections of the
// reserve, it passes only vital requests, and answers all others with refuse. A
// connection of the reserve is closed after one request.
func (l *Listener) Handler(next, refuse http.Handler, vital func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(reservedKey{}) == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if vital(r) {
			next.ServeHTTP(w, r)
			return
		}
		l.mu.Lock()
		l.refused++
		l.mu.Unlock()
		refuse.ServeHTTP(w, r)
	})
}
