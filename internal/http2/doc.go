// Package http2 serves unary gRPC calls faster than the server of grpc-go.
//
// A [Server] reads all frames of a connection that have arrived. If the field Together of a
// [Method] is set, the Server passes all complete calls of the Method to its function together, and
// writes all answers with one system call. Otherwise it passes each call to the function in a
// goroutine of its own. An http.Handler serves all other requests, such as streams, health checks
// and reflection, each in a goroutine. [grpc.Server.ServeHTTP] is such a handler.
//
// The package parses frames and headers with golang.org/x/net/http2. This package implements the
// rules of RFC 9113 for streams, flow control and settings.
// docs/adr/0063-calls-of-a-connection-together.md has the measurements.
//
// [grpc.Server.ServeHTTP]: https://pkg.go.dev/google.golang.org/grpc#Server.ServeHTTP
package http2
