package connlimit

import (
	"context"
	"net"
	"net/http"
)

// ConnState records whether a connection of an http.Server is idle. Set the field
// http.Server.ConnState to it.
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

// ConnContext stores a connection from the reserve in the context of its requests. Handler reads
// it. Set the field http.Server.ConnContext to it.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if own := find(c); own != nil && own.reserved {
		return context.WithValue(ctx, reservedKey{}, own)
	}
	return ctx
}

// Handler returns a handler that passes requests to next. On a connection from the reserve, it
// passes only requests for which vital returns true to next. It passes all other requests to
// refuse. Such a connection is closed after one request. If its request is refused, the Listener may
// close it at once, because net/http waits for the rest of a body before it closes a connection.
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
		_ = http.NewResponseController(w).Flush() // an error means that the client has left
		conn.Idle()
	})
}
