// Package http1 reads and answers the POST requests of one path without the server
// of net/http.
//
// A request enters in [Server.Serve]. If it is complete, small, and in the usual
// form, the package parses it, calls the http.Handler, and writes the answer with
// one system call. A request of any other form passes its connection, with all
// bytes that were read and not used, to an http.Server, which serves the
// connection until it ends. So net/http implements every rule of HTTP that this
// package does not.
//
// One kind of request returns from net/http: one whose body arrives in chunks. This
// package reads its chunks, because net/http does not show their sizes, nor whether
// the request also had a Content-Length.
//
// The package imports only the standard library.
package http1
