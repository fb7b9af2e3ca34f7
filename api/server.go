package api

import (
	"log/slog"
	"net/http"
	"time"
)

// maxHeaderBytes bounds the request line and the headers.
const maxHeaderBytes = 16 << 10

// Server returns an http.Server with bounded headers and times, against slow clients.
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
