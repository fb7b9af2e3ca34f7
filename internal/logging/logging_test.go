package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience ends a broken test; no test asserts a duration.
const patience = time.Minute

// blocked is a target that accepts no line until it is opened.
type blocked struct {
	open    chan struct{}
	entered chan struct{} // receives when a Write begins
	mu      sync.Mutex
	text    bytes.Buffer
}

func newBlocked() *blocked {
	return &blocked{open: make(chan struct{}), entered: make(chan struct{}, 1)}
}

func (b *blocked) Write(p []byte) (int, error) {
	select {
	case b.entered <- struct{}{}:
	default:
	}
	<-b.open
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *blocked) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func jsonLines(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) }

func TestBlockedTargetBlocksNobody(t *testing.T) {
	t.Parallel()
	target := newBlocked()
	log := New(target, jsonLines, Clock{})
	log.Info("first")
	<-target.entered // the goroutine holds the first line; the queue is empty
	const lines = maxQueued + 500
	for i := range lines {
		log.Info(fmt.Sprint("line ", i))
	}
	if got := log.Status().Dropped; got != lines-maxQueued {
		t.Errorf("%d lines dropped, want %d", got, lines-maxQueued)
	}
	if err := log.Close(0); err == nil || !strings.Contains(err.Error(), "did not accept") {
		t.Errorf("Close with a blocked target: %v", err)
	}
	close(target.open)
	if err := log.Close(patience); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(target.String(), "\n"), "\n")
	if len(got) != 1+maxQueued+1 {
		t.Fatalf("%d lines written, want %d", len(got), 1+maxQueued+1)
	}
	if !strings.Contains(got[1], `"line 0"`) || !strings.Contains(got[maxQueued], fmt.Sprintf(`"line %d"`, maxQueued-1)) {
		t.Errorf("lines are not in order: %s … %s", got[1], got[maxQueued])
	}
	if last := got[len(got)-1]; !strings.Contains(last, `"dropped":500`) {
		t.Errorf("the last line is %s, want the number of dropped lines", last)
	}
	log.Info("too late")
	if got := log.Status().Dropped; got != lines-maxQueued+1 {
		t.Errorf("%d lines dropped, want the one after Close to count", got)
	}
}

func TestLongLinesAreCut(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	fmt.Fprintln(w, strings.Repeat("x", 2*maxLine))
	if err := w.Close(patience); err != nil {
		t.Fatal(err)
	}
	if out.Len() != maxLine || !strings.HasSuffix(out.String(), "x\n") {
		t.Errorf("%d bytes written, want %d that end a line", out.Len(), maxLine)
	}
}

// folding is a handler with a clock of the test.
type folding struct {
	*slog.Logger
	handler *handler
	out     bytes.Buffer
	clock   time.Time
	timers  []timer
}

type timer struct {
	at time.Time
	do func()
}

func newFolding() *folding {
	f := &folding{clock: time.Unix(1_000_000, 0)}
	f.handler = newHandler(jsonLines(&f.out), Clock{
		Now:       func() time.Time { return f.clock },
		AfterFunc: func(d time.Duration, do func()) { f.timers = append(f.timers, timer{f.clock.Add(d), do}) },
	})
	f.Logger = slog.New(f.handler)
	return f
}

// pass moves the clock and runs the timers that are due.
func (f *folding) pass(d time.Duration) {
	f.clock = f.clock.Add(d)
	due := f.timers
	f.timers = nil
	for _, timer := range due {
		if timer.at.After(f.clock) {
			f.timers = append(f.timers, timer)
		} else {
			timer.do()
		}
	}
}

// lines returns the written lines as "msg" or "msg repeated=n", and empties the output.
func (f *folding) lines(t *testing.T) []string {
	t.Helper()
	var got []string
	for line := range strings.Lines(f.out.String()) {
		var r struct {
			Msg      string
			Repeated int
			Also     string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Repeated > 0 {
			r.Msg += fmt.Sprint(" repeated=", r.Repeated)
		}
		if r.Also != "" {
			r.Msg += " also=" + r.Also
		}
		got = append(got, r.Msg)
	}
	f.out.Reset()
	return got
}

func TestRepeatedWarningsAreFolded(t *testing.T) {
	t.Parallel()
	f := newFolding()
	for i := range 100 {
		f.Warn("redis: no reply", "error", fmt.Sprint("read from port ", i), "waited", i)
		f.Info("snapshot: swapped")
	}
	f.Warn("overloaded", "tenant", "a")
	f.Warn("overloaded", "tenant", "b")
	f.With("tenant", "a").Warn("overloaded")
	got := f.lines(t)
	if len(got) != 1+100+2 || got[0] != "redis: no reply" || got[101] != "overloaded" {
		t.Fatalf("%d lines: %v", len(got), got)
	}
	if n := f.handler.Folded(); n != 99+1 {
		t.Errorf("%d folded, want 100", n)
	}
	f.pass(foldPeriod)
	if got := fmt.Sprint(f.lines(t)); got != "[redis: no reply repeated=99 overloaded repeated=1]" {
		t.Errorf("at the end of the period: %s", got)
	}
	f.Warn("redis: no reply") // the fault lasts: one line per period
	f.pass(foldPeriod)
	if got := fmt.Sprint(f.lines(t)); got != "[redis: no reply repeated=1]" {
		t.Errorf("at the end of the second period: %s", got)
	}
	f.pass(foldPeriod) // quiet
	f.Warn("redis: no reply")
	if got := fmt.Sprint(f.lines(t)); got != "[redis: no reply]" {
		t.Errorf("after a quiet period: %s", got)
	}
	if len(f.timers) != 1 {
		t.Errorf("%d timers, want that of the open period", len(f.timers))
	}
}

// An outage is the common cause of errors.
type outage string

func (o outage) Error() string       { return string(o) }
func (o outage) CommonCause() string { return string(o) }

// Different warnings whose errors have one cause are one line, and another line at the end of
// the period names them.
func TestWarningsOfOneCauseAreFolded(t *testing.T) {
	t.Parallel()
	f := newFolding()
	for range 3 {
		for _, message := range []string{"counts wait", "rules are not evaluated", "counts are not rolled up"} {
			f.Warn(message, "error", fmt.Errorf("%s: %w", message, outage("the database is away")))
		}
	}
	f.Warn("counts wait", "error", outage("the database is full"))
	f.Warn("counts wait", "error", outage(""))
	if got := fmt.Sprint(f.lines(t)); got != "[counts wait counts wait counts wait]" {
		t.Fatal(got)
	}
	f.pass(foldPeriod)
	if got := fmt.Sprint(f.lines(t)); got != "[counts are not rolled up repeated=8 also=rules are not evaluated; counts wait]" {
		t.Errorf("at the end of the period: %s", got)
	}
}

// A fault that comes and goes is one line of its beginnings and one of its ends.
func TestEndsOfFaultsAreFolded(t *testing.T) {
	t.Parallel()
	f := newFolding()
	for i := range 5 {
		f.Warn("counts wait", "error", outage("the database is away"), "verdict", fmt.Sprint(i))
		f.Info("counts are written again", "failed", i)
		f.Info("alert rules are evaluated again")
		f.Info("snapshot: swapped")
		f.Debug("written again")
	}
	if got := fmt.Sprint(f.lines(t)); got != "[counts wait counts are written again"+strings.Repeat(" snapshot: swapped", 5)+"]" {
		t.Fatal(got)
	}
	f.pass(foldPeriod)
	got := f.lines(t)
	slices.Sort(got)
	if want := "[alert rules are evaluated again repeated=9 also=counts are written again counts wait repeated=4]"; fmt.Sprint(got) != want {
		t.Errorf("at the end of the period: %s", got)
	}
}

func TestFoldedWarningsAreBoundedAndFlushed(t *testing.T) {
	t.Parallel()
	f := newFolding()
	for i := range maxFolds {
		f.Warn(fmt.Sprint("warning ", i))
		f.clock = f.clock.Add(time.Millisecond)
	}
	f.Warn("warning 0")
	f.Warn("one more")
	if n := len(f.handler.folds.open); n != maxFolds {
		t.Errorf("%d warnings are folded at once, want %d", n, maxFolds)
	}
	got := f.lines(t)
	if want := "[warning 0 repeated=1 one more]"; fmt.Sprint(got[maxFolds:]) != want {
		t.Errorf("beyond the bound: %v, want %s", got[maxFolds:], want)
	}
	f.Warn("one more")
	f.handler.folds.flush()
	if got := fmt.Sprint(f.lines(t)); got != "[one more repeated=1]" {
		t.Errorf("flush wrote %s", got)
	}
}

// failing is a target that returns an error until it is opened.
type failing struct {
	open atomic.Bool
	text bytes.Buffer
}

func (f *failing) Write(p []byte) (int, error) {
	if !f.open.Load() {
		return 0, io.ErrClosedPipe
	}
	return f.text.Write(p)
}

func TestLinesOfFailingTargetAreCounted(t *testing.T) {
	t.Parallel()
	var target failing
	log := New(&target, jsonLines, Clock{})
	for range 3 {
		log.Info("lost")
	}
	for end := time.Now().Add(patience); log.Status().Dropped < 3; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d lines dropped, want 3", log.Status().Dropped)
		}
	}
	target.open.Store(true)
	log.Info("kept")
	if err := log.Close(patience); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(target.text.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"kept"`) || !strings.Contains(lines[1], `"dropped":3`) {
		t.Errorf("%q", lines)
	}
}

// Messages of net/http that differ in the client are folded, and lose nothing. Different
// panics are not folded.
func TestHTTPErrorsAreFolded(t *testing.T) {
	t.Parallel()
	f := newFolding()
	log := HTTPErrors(f.handler)
	for port := range 50 {
		log.Printf("http: TLS handshake error from 192.0.2.1:%d: EOF", 4000+port)
		log.Printf("http: TLS handshake error from [2001:db8::1]:%d: read tcp 10.0.0.1:1->10.0.0.2:%d: reset", 4000+port, port)
		log.Printf("http: Accept error: accept tcp [::]:80: too many open files; retrying in %dms", port)
		log.Printf("http2: server: error reading preface from client 192.0.2.1:%d: timeout", port)
		log.Printf("http: panic serving 192.0.2.1:%d: one\ngoroutine %d [running]:", port, port)
		log.Printf("http: panic serving 192.0.2.1:%d: two\ngoroutine %d [running]:", port, port)
		log.Print("a line of another form")
	}
	text := f.out.String()
	for _, want := range []string{
		`"msg":"http: TLS handshake error","addr":"192.0.2.1:4000","error":"EOF"`,
		`"msg":"http: panic serving","addr":"192.0.2.1:0","panic":"two","error":"goroutine 0 [running]:"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not have %s", want)
		}
	}
	if got := f.lines(t); len(got) != 6 || f.handler.Folded() != 350-6 {
		t.Errorf("%d lines, %d folded: %s", len(got), f.handler.Folded(), text)
	}
}
