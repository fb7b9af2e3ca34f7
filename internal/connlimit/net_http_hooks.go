package connlimit

import (
	"context"
	"net"
	"net/http"
)

// ConnState records whether a connection of an http.Server is idle. Callers set the field
// http.Server.ConnState to this method.
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

// find returns the Conn inside c, which may be a TLS connection or another wrapper. It returns
// nil if there is no Conn inside.
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

// ConnContext marks the context of requests on a connection of the reserve. Handler reads the mark.
// Callers set the field http.Server.ConnContext to this method.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if own := find(c); own != nil && own.reserved {
		return context.WithValue(ctx, reservedKey{}, own)
	}
	return ctx
}

// Handler returns a handler that passes requests to next. On a connection of the reserve, it passes
// a request to next only if vital returns true, and otherwise to refuse. Each connection of the
// reserve is closed after one request. After a refused request, the Listener may close the
// connection immediately, because otherwise net/http would first wait for the rest of the body.
func (l *Listener) Handler(next, refuse http.Handler, vital func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, reserved := r.Context().Value(reservedKey{}).(*Conn)
		if !reserved {
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
		_ = http.NewResponseController(w).Flush() // an error means that the client has disconnected
		conn.Idle()
	})
}
