package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"time"
)

// A Log is the log of a process. It folds repeated warnings into one line, and writes lines in the
// background.
type Log struct {
	*slog.Logger
	handler *handler
	writer  *Writer
}

// A Clock measures the periods in which repeated lines are folded. The zero value is the clock of
// the system.
type Clock struct {
	Now       func() time.Time                // default: time.Now
	AfterFunc func(d time.Duration, f func()) // calls f after d; default: time.AfterFunc
}

// New returns a Log that writes to target. format returns a handler that formats lines:
// slog.NewTextHandler or slog.NewJSONHandler. The caller must call Close before the process ends.
func New(target io.Writer, format func(io.Writer) slog.Handler, clock Clock) *Log {
	notice := func(dropped int64) []byte {
		var line bytes.Buffer
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines dropped: the log target was blocked or returned errors", 0)
		r.AddAttrs(slog.Int64("dropped", dropped))
		_ = format(&line).Handle(context.Background(), r)
		return line.Bytes()
	}
	w := NewWriter(target, notice)
	h := newHandler(format(w), clock)
	return &Log{Logger: slog.New(h), handler: h, writer: w}
}

// A Status contains the numbers of lines that were not written since the start: folded lines and
// dropped lines.
type Status struct {
	Dropped int64 // dropped because the queue was full, or because the target returned an error
	Folded  int64 // the line repeated another one
}

// Status returns the current numbers.
func (l *Log) Status() Status {
	return Status{Dropped: l.writer.Dropped(), Folded: l.handler.Folded()}
}

// Close writes the folded and the queued lines. It returns an error if the target does not accept
// them within timeout.
func (l *Log) Close(timeout time.Duration) error {
	l.handler.folds.flush()
	return l.writer.Close(timeout)
}
