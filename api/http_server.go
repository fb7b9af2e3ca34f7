package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/logging"
)

// maxHeaderBytes is the maximum size of the request line and the headers of a request.
const maxHeaderBytes = 16 << 10

// Server returns an http.Server for handler. It bounds the size of the headers and the time of each
// phase of a request, so that slow clients cannot occupy the node.
func Server(addr string, handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       9 * time.Second, // less than 10 s: with the waits before and after the body, a request then ends within 10 s
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          logging.HTTPErrors(logger.Handler()),
	}
}
