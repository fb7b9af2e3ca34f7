package connlimit

import (
	"context"
	"net"
	"net/http"
)

// ConnState is a http.Server's ConnState.
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

// find returns the Conn inside a connection of TLS or of another wrapper; nil if there
// is none.
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

// ConnContext is a http.Server's ConnContext. Handler needs it.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if own := find(c); own != nil && own.reserved {
		return context.WithValue(ctx, reservedKey{}, true)
	}
	return ctx
}

// Handler passes all requests to next, except those on connections of the reserve
// that are not vital. It answers these with refuse. A connection of the reserve
// ends after one request.
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
