package api

import (
	"log/slog"
	"net/http"
	"time"
)

// maxHeaderBytes bounds a request's line and headers.
const maxHeaderBytes = 16 << 10

// Server makes an http.Server whose headers, times and connections are
// bounded: a client that trickles its request is cut off.
func Server(addr string, handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       9 * time.Second, // with what comes before and behind it, a body ends within 10 s
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}
