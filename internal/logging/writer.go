package logging

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued is the number of lines that wait for the target. At about 250
// bytes a line they take half a megabyte.
const maxQueued = 2048

// maxLine is the number of bytes of a line that are written. Longer lines, such
// as stack traces, are cut, so that the queue has a bound in bytes: 32 MiB.
const maxLine = 16 << 10

// A Writer writes lines to a target in the background. Write never blocks.
type Writer struct {
	target  io.Writer
	lines   chan []byte
	dropped atomic.Int64 // lines that found the queue full, since the start
	told    int64        // the part of dropped that is in the log; used by run
	notice  func(dropped int64) []byte

	closing sync.Once
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed when run has written the queue
}

// NewWriter returns a Writer to target and starts its goroutine. If notice is
// not nil, it formats the line that reports how many lines were dropped.
// The caller calls Close at the end.
func NewWriter(target io.Writer, notice func(dropped int64) []byte) *Writer {
	w := &Writer{
		target: target, notice: notice,
		lines: make(chan []byte, maxQueued), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// Write queues a copy of one line. If the queue is full or w is closed, the
// line is dropped and counted. It always returns len(line) and no error.
func (w *Writer) Write(line []byte) (int, error) {
	select {
	case <-w.quit:
		w.dropped.Add(1)
		return len(line), nil
	default:
	}
	select {
	case w.lines <- cut(line):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

// cut returns a copy of line of at most maxLine bytes that ends with a newline.
func cut(line []byte) []byte {
	if len(line) <= maxLine {
		return append([]byte(nil), line...)
	}
	return append(append([]byte(nil), line[:maxLine-1]...), '\n')
}

// Dropped returns the number of lines that were dropped since the start.
func (w *Writer) Dropped() int64 { return w.dropped.Load() }

// Close writes the queued lines and stops the goroutine. It returns an error
// if the target does not accept them before the timeout.
func (w *Writer) Close(timeout time.Duration) error {
	w.closing.Do(func() { close(w.quit) })
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("the log target did not accept %d lines within %v", len(w.lines), timeout)
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for {
		select {
		case line := <-w.lines:
			w.write(line)
		case <-w.quit:
			for {
				select {
				case line := <-w.lines:
					w.write(line)
				default:
					w.reportDropped()
					return
				}
			}
		}
	}
}

// write writes a line, and after it how many lines were dropped while the
// target blocked. An error of the target is ignored: there is no other place
// to report it.
func (w *Writer) write(line []byte) {
	_, _ = w.target.Write(line)
	if len(w.lines) == 0 {
		w.reportDropped()
	}
}

func (w *Writer) reportDropped() {
	n := w.dropped.Load()
	if n == w.told || w.notice == nil {
		return
	}
	_, _ = w.target.Write(w.notice(n - w.told))
	w.told = n
}
