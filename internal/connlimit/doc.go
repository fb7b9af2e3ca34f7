// Package connlimit bounds the connections of a listener.
//
// [Wrap] makes a [Listener] that accepts at most so many connections, and so many
// of each address. Above a bound it first closes connections that wait for a
// request, and of these first the ones that never sent one. If all connections are
// in use, a new one is accepted from a reserve: [Listener.Handler] answers its
// request only if it asks for the health of the process, and otherwise with 503.
//
// The server reports when a connection waits for a request: that of net/http
// through [Listener.ConnState], any other through [Conn.Idle] and [Conn.Busy].
//
// The package imports only the standard library.
package connlimit
