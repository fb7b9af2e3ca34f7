package logging

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued is the maximum number of lines that wait to be written. At about 250 bytes per line,
// they take half a megabyte.
const maxQueued = 2048

// maxLine is the maximum number of bytes of a line. The rest of a longer line, such as a stack
// trace, is cut off. Therefore the queue takes at most 32 MiB.
const maxLine = 16 << 10

// A Writer writes lines to a target in the background. Its method Write never blocks.
type Writer struct {
	target  io.Writer
	lines   chan []byte
	dropped atomic.Int64 // number of lines since the start that were not written: the queue was full, or the target returned an error
	told    int64        // the part of dropped that notice has already reported; only run uses it
	notice  func(dropped int64) []byte

	closing sync.Once
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed when run has written all lines in the queue
}

// NewWriter returns a Writer and starts its goroutine. notice returns the line that reports how
// many lines were dropped; it may be nil. The caller must call Close at the end.
func NewWriter(target io.Writer, notice func(dropped int64) []byte) *Writer {
	w := &Writer{
		target: target, notice: notice,
		lines: make(chan []byte, maxQueued), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// Write queues a copy of one line. It drops and counts the line if the queue is full or the Writer
// is closed. Write always returns len(line) and no error.
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

// cut returns a copy of a line. A line that is longer than maxLine bytes is cut off.
func cut(line []byte) []byte {
	if len(line) <= maxLine {
		return append([]byte(nil), line...)
	}
	return append(append([]byte(nil), line[:maxLine-1]...), '\n')
}

// Dropped returns the number of lines that were dropped since the start.
func (w *Writer) Dropped() int64 { return w.dropped.Load() }

// Close writes the queued lines and stops the goroutine. It returns an error if the target does not accept the lines
// within the timeout.
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

// write writes a line to the target. If no other line is in the queue, write also reports how many
// lines were dropped. If the target returns an error, the line counts as dropped, because the error
// can be reported nowhere else.
func (w *Writer) write(line []byte) {
	if _, err := w.target.Write(line); err != nil {
		w.dropped.Add(1)
	} else if len(w.lines) == 0 {
		w.reportDropped()
	}
}

func (w *Writer) reportDropped() {
	n := w.dropped.Load()
	if n == w.told || w.notice == nil {
		return
	}
	if _, err := w.target.Write(w.notice(n - w.told)); err == nil {
		w.told = n
	}
}
