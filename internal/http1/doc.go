// Package http1 serves the POST requests of one path faster than the server of net/http.
//
// A connection enters in [Server.Serve]. If a request is complete, small, and in the usual form,
// this package parses it, calls the http.Handler, and writes the response with one system call. If
// a connection has any other request, this package passes the connection, with all unused bytes, to
// an http.Server, which serves the connection until it ends. Therefore this package does not need
// to implement all rules of HTTP: net/http implements the rest.
//
// There is one exception: if a request has a body in chunked encoding, net/http returns the request
// to this package. This package reads such a body itself, because net/http reports neither the
// sizes of chunks nor whether the request also had a Content-Length.
//
// The package imports only the standard library.
package http1
