// Package http2 serves unary gRPC calls faster than the server of grpc-go.
//
// A [Server] reads all frames of a connection that have arrived. It passes the complete calls of one [Method] to its
// function together, so that they can be decided together, and writes all answers with one system call. If the Method takes
// one call, each call has a goroutine. An http.Handler serves all other requests, such as streams, health checks and
// reflection, each in a goroutine. [grpc.Server.ServeHTTP] is such a handler.
//
// The package parses frames and headers with golang.org/x/net/http2. The rules of RFC 9113 for streams, flow control and
// settings are here. docs/adr/0063-calls-of-a-connection-together.md has the measurements.
//
// [grpc.Server.ServeHTTP]: https://pkg.go.dev/google.golang.org/grpc#Server.ServeHTTP
package http2
