// Package connlimit bounds the number of connections of a listener.
//
// [Wrap] returns a [Listener] with two bounds: one for all connections, and one for the connections
// from one address. If a new connection would exceed a bound, the Listener closes idle connections
// to make room. It closes connections that never sent a request first. If all connections are in
// use, it accepts the new connection as one of a reserve. On a connection of the reserve,
// [Listener.Handler] serves only health requests, and answers all other requests with 503.
//
// The Listener needs to know which connections are idle. A server of net/http reports this through
// [Listener.ConnState], other servers through [Conn.Idle] and [Conn.Busy].
//
// A connection whose client stops reading ends: [Conn.Write] fails after 10 seconds.
//
// The package imports only the standard library.
package connlimit
