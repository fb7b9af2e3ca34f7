package logging

import (
	"context"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"time"
)

// HTTPErrors returns a logger for the field ErrorLog of an http.Server. It writes each message as a
// warning of h. A message of net/http contains the address of the client and an error. HTTPErrors
// moves them to the attributes addr and error. Otherwise all messages would differ and would not be
// folded.
func HTTPErrors(h slog.Handler) *log.Logger { return log.New(httpErrors{h}, "", 0) }

type httpErrors struct{ next slog.Handler }

// clientSuffix matches the end of a message that names the client, like " from 192.0.2.1:4711" or "
// serving [2001:db8::1]:4711".
var clientSuffix = regexp.MustCompile(`^(.*?)(?: from(?: client)?)? (\S+:\d+)$`)

// Write implements io.Writer. A line has the form "http: KIND ADDRESS: ERROR". Some kinds have no
// address or no error.
func (e httpErrors) Write(line []byte) (int, error) {
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "", 0)
	if !e.next.Enabled(context.Background(), r.Level) {
		return len(line), nil
	}
	text := strings.TrimSuffix(string(line), "\n")
	kind, cause := text, ""
	if begin := strings.Index(text, ": ") + 1; begin > 0 { // after the prefix "http"
		if end := strings.Index(text[begin:], ": "); end >= 0 {
			kind, cause = text[:begin+end], text[begin+end+2:]
		}
	}
	if parts := clientSuffix.FindStringSubmatch(kind); parts != nil {
		kind = parts[1]
		r.AddAttrs(slog.String("addr", parts[2]))
	}
	r.Message = kind
	if strings.Contains(kind, "panic") { // each message about a panic is written, because the panics may differ
		value, stack, _ := strings.Cut(cause, "\n")
		r.AddAttrs(slog.String("panic", value))
		cause = stack
	}
	if cause != "" {
		r.AddAttrs(slog.String("error", cause))
	}
	return len(line), e.next.Handle(context.Background(), r)
}
