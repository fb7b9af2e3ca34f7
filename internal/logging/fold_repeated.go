package logging

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// foldPeriod is the time after a warning within which equal warnings are folded.
	foldPeriod = time.Minute
	// maxFolds is the maximum number of different warnings that are folded at the same time. If
	// another warning comes, the oldest period ends early.
	maxFolds = 256
	// maxMessages is the maximum number of messages that a fold remembers.
	maxMessages = 16
)

// ignoredInFold has the names of the attributes whose values may differ in equal warnings. Their
// values contain ports, durations or counters, or repeat the text of the error.
var ignoredInFold = map[string]bool{"error": true, "err": true, "request_id": true, "addr": true, "verdict": true}

// recovered is the end of those messages of level Info that report the end of a fault, like "counts
// are written again".
const recovered = " again"

// A causer is an error that may have a common cause: a cause that makes many operations fail, such
// as a database that cannot be reached. CommonCause returns this cause, or "" if there is none.
type causer interface {
	error
	CommonCause() string
}

// A handler is a slog.Handler that folds repeated warnings and errors into one line.
//
// Two records are equal if their level, their message, and their string attributes are equal. The
// attributes in ignoredInFold do not matter. The handler passes on the first of several equal
// records at once, and starts a period. When the period ends, the handler passes on the last of the
// equal records. This record gets the attribute repeated: the number of equal records after the
// first. Records below the level of a warning are passed on unchanged, except for records that
// report the end of a fault.
//
// Two records are also equal if their errors have the same common cause, or if both report the end
// of a fault. Otherwise one outage of the database would cause one line for each operation that
// needs the database, and again one line for each when the outage ends. The record at the end of
// the period gets the attribute also, which contains the messages of the other operations.
type handler struct {
	next   slog.Handler
	prefix string // text of the attributes and groups that WithAttrs and WithGroup added
	folds  *folds // shared by all handlers that WithAttrs and WithGroup return
}

// folds is the state that a handler shares with the handlers that its methods WithAttrs and
// WithGroup return.
type folds struct {
	clock  Clock
	folded atomic.Int64

	mu   sync.Mutex
	open map[string]*fold
}

// A fold is the running period of one warning.
type fold struct {
	next     slog.Handler
	last     slog.Record // the last equal record
	messages []string    // the different messages of the equal records, at most maxMessages
	repeated int64       // number of equal records since the first
	ends     time.Time
}

// newHandler returns a handler that passes records to next.
func newHandler(next slog.Handler, clock Clock) *handler {
	if clock.Now == nil {
		clock = Clock{Now: time.Now, AfterFunc: func(d time.Duration, f func()) { time.AfterFunc(d, f) }}
	}
	return &handler{next: next, folds: &folds{clock: clock, open: map[string]*fold{}}}
}

// Folded returns the number of records that were not passed on, because they were equal to an
// earlier record.
func (h *handler) Folded() int64 { return h.folds.folded.Load() }

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	prefix := h.prefix
	for _, a := range attrs {
		prefix += identity(a)
	}
	return &handler{next: h.next.WithAttrs(attrs), prefix: prefix, folds: h.folds}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), prefix: h.prefix + "\x00" + name + ".", folds: h.folds}
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	ends := r.Level == slog.LevelInfo && strings.HasSuffix(r.Message, recovered)
	if (ends || r.Level >= slog.LevelWarn) && h.folds.fold(h.next, h.key(r), r) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// key returns a text that is equal for two records if, and only if, the handler treats the records
// as equal.
func (h *handler) key(r slog.Record) string {
	if r.Level < slog.LevelWarn {
		return recovered
	}
	key, cause := r.Level.String()+"\x00"+r.Message+h.prefix, ""
	r.Attrs(func(a slog.Attr) bool {
		key += identity(a)
		if err, ok := a.Value.Any().(error); ok {
			if c := causer(nil); errors.As(err, &c) {
				cause = c.CommonCause()
			}
		}
		return true
	})
	if cause != "" {
		return "cause\x00" + cause
	}
	return key
}

// identity returns the part of the result of key that describes an attribute. It is "" for an
// attribute that does not matter.
func identity(a slog.Attr) string {
	if a.Value.Kind() != slog.KindString || ignoredInFold[a.Key] {
		return ""
	}
	return "\x00" + a.Key + "=" + a.Value.String()
}

// fold reports whether a record was folded, because an equal record started a period that has not
// ended yet. Otherwise, fold starts a new period for the record, and the caller writes the record.
func (f *folds) fold(next slog.Handler, key string, r slog.Record) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open := f.open[key]; open != nil {
		open.last, open.repeated, open.next = r.Clone(), open.repeated+1, next
		if !slices.Contains(open.messages, r.Message) && len(open.messages) < maxMessages {
			open.messages = append(open.messages, r.Message)
		}
		f.folded.Add(1)
		return true
	}
	if len(f.open) >= maxFolds {
		f.closeOldest()
	}
	f.open[key] = &fold{ends: f.clock.Now().Add(foldPeriod)}
	f.clock.AfterFunc(foldPeriod, func() { f.close(key) })
	return false
}

// close ends the period of a warning. If equal records came during the period, close passes on the
// last of them and starts a new period. Therefore a lasting fault causes one line per period.
func (f *folds) close(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := f.open[key]
	if open == nil || open.ends.After(f.clock.Now()) {
		return // closeOldest has already ended this period, and a new period has started
	}
	if open.repeated == 0 {
		delete(f.open, key)
		return
	}
	open.write()
	open.repeated, open.messages, open.ends = 0, nil, f.clock.Now().Add(foldPeriod)
	f.clock.AfterFunc(foldPeriod, func() { f.close(key) })
}

// closeOldest ends the period that began first.
func (f *folds) closeOldest() {
	var oldest string
	for key, open := range f.open {
		if oldest == "" || open.ends.Before(f.open[oldest].ends) {
			oldest = key
		}
	}
	f.open[oldest].write()
	delete(f.open, oldest)
}

// flush ends all periods and passes on their repeated warnings. Log.Close calls it.
func (f *folds) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, open := range f.open {
		open.write()
		delete(f.open, key)
	}
}

func (d *fold) write() {
	if d.repeated == 0 {
		return
	}
	r := d.last
	r.AddAttrs(slog.Int64("repeated", d.repeated))
	others := slices.DeleteFunc(slices.Clone(d.messages), func(m string) bool { return m == d.last.Message })
	if len(others) > 0 {
		r.AddAttrs(slog.String("also", strings.Join(others, "; ")))
	}
	_ = d.next.Handle(context.Background(), r)
}
