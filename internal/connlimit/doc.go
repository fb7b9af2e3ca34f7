// Package connlimit bounds the number of connections of a listener.
//
// [Wrap] returns a [Listener] with two bounds: for all connections, and for those of
// one address. At a bound, it closes idle connections to make room for a new one, first
// those that never sent a request. If all connections are in use, it accepts a new
// connection from a reserve. On such a connection, [Listener.Handler] only serves
// health requests. It answers all others with 503.
//
// The Listener needs to know which connections are idle. A server of net/http reports
// this through [Listener.ConnState], other servers through [Conn.Idle] and [Conn.Busy].
//
// The package imports only the standard library.
package connlimit
