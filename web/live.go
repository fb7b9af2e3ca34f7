package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a-h/templ"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

// Live streams send parts of a page again when they changed, as server-sent
// events with HTML in them.

const (
	// maxStreams is how many live pages one node serves at once; what comes
	// beyond is answered "not available", and its page stands still.
	maxStreams = 1000
	// maxOwnStreams is how many of them one person has at most: nobody takes the
	// live pages of all others.
	maxOwnStreams = 40
	// heartbeat keeps proxies from closing a stream that has nothing to say.
	heartbeat = 15 * time.Second
	// recheck is how often a stream asks whether its session still lives.
	recheck = 15 * time.Second
	// writeWithin is how long a browser may take to take what it is sent.
	WriteWithin = 10 * time.Second
)

type streams struct {
	open    atomic.Int64
	recheck time.Duration // 0: as often as the constant says

	mu  sync.Mutex
	own map[string]int // of each person who has any, by the user's id
}

// enter counts a stream of a person in, and gives what counts it out; false when
// there are as many as there may be.
func (s *streams) enter(user string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own[user] >= maxOwnStreams || s.open.Load() >= maxStreams {
		return nil, false
	}
	if s.own == nil {
		s.own = make(map[string]int)
	}
	s.own[user]++
	s.open.Add(1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open.Add(-1)
		if s.own[user]--; s.own[user] == 0 {
			delete(s.own, user)
		}
	}, true
}

// streamLines ends lines as a browser takes them to: in a stream a carriage
// return begins a new line too, and a text with one begins no event of its own.
var streamLines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// A Fragment is a part of a page: the name of its event, which the page's
// sse-swap has, and what it shows.
type Fragment struct {
	Event string
	Body  templ.Component
}

// Stream sends what draw gives, first at once and then every so often; each
// fragment only when it changed. It ends when the browser leaves, the session
// ends or the node stops; when draw fails it waits and tries again.
func (w *Shell) Stream(c echo.Context, every time.Duration, draw func(context.Context) ([]Fragment, error)) error {
	leave, ok := w.streams.enter(VisitorOf(c).User.ID)
	if !ok {
		return problem.New(problem.Unavailable, "this node serves as many live pages as it can: reload to see what is new")
	}
	defer leave()
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(w.cfg.Stopping, cancel)()
	h := c.Response().Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := &sender{to: c.Response(), control: http.NewResponseController(c.Response()), sent: map[string][sha256.Size]byte{}}
	if err := s.write("retry: 2000\n\n"); err != nil {
		return nil // the browser is gone
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	var spoke, checked time.Time
	checked = time.Now()
	again := cmp.Or(w.streams.recheck, recheck)
	for {
		if time.Since(checked) >= again {
			if !w.lives(ctx, VisitorOf(c)) {
				return nil
			}
			checked = time.Now()
		}
		said, err := w.send(ctx, s, draw)
		if err != nil {
			return nil // the browser is gone
		}
		switch {
		case said:
			spoke = time.Now()
		case time.Since(spoke) >= heartbeat:
			if s.write(": still here\n\n") != nil {
				return nil
			}
			spoke = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// send draws once and sends what changed. Its error is the connection's.
func (w *Shell) send(ctx context.Context, s *sender, draw func(context.Context) ([]Fragment, error)) (said bool, err error) {
	bounded, cancel := context.WithTimeoutCause(ctx, max(w.cfg.Timeout, 5*time.Second), ErrSlow)
	defer cancel()
	list, failed := draw(bounded)
	for _, f := range list {
		changed, err := s.send(bounded, f)
		if err != nil {
			return said, err
		}
		said = said || changed
	}
	if failed != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("a live page could not be drawn anew; it stands still", "error", failed)
	}
	return said, nil
}

// lives reports whether a visitor's session has not ended. Asking does not keep
// it alive: a page that is only looked at ends with its session.
func (w *Shell) lives(ctx context.Context, v Visitor) bool {
	bounded, cancel := context.WithTimeoutCause(ctx, w.cfg.Timeout, ErrSlow)
	defer cancel()
	list, err := w.cfg.People.Sessions(bounded, v.User)
	if err != nil {
		return ctx.Err() == nil // the database is away: the next time tells
	}
	return slices.ContainsFunc(list, func(s accounts.Session) bool { return s.ID == v.Session.ID })
}

// A sender writes events to one browser.
type sender struct {
	to      http.ResponseWriter
	control *http.ResponseController
	sent    map[string][sha256.Size]byte // of each event, what was sent last
}

func (s *sender) send(ctx context.Context, f Fragment) (changed bool, err error) {
	var b bytes.Buffer
	if err := f.Body.Render(ctx, &b); err != nil {
		return false, fmt.Errorf("render %s: %w", f.Event, err)
	}
	sum := sha256.Sum256(b.Bytes())
	if last, known := s.sent[f.Event]; known && last == sum {
		return false, nil
	}
	s.sent[f.Event] = sum
	var event strings.Builder
	event.WriteString("event: " + f.Event + "\n")
	for line := range strings.Lines(streamLines.Replace(b.String())) {
		event.WriteString("data: " + strings.TrimRight(line, "\n") + "\n")
	}
	event.WriteString("\n")
	return true, s.write(event.String())
}

func (s *sender) write(text string) error {
	// Not every writer has deadlines; without one the connection's own hold.
	_ = s.control.SetWriteDeadline(time.Now().Add(WriteWithin))
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// compressed packs pages for browsers that can unpack them. Their lengths are
// blurred a little, so that nobody learns from them what is on a page that also
// shows what somebody else chose. Streams and files that are packed already pass.
func compressed() echo.MiddlewareFunc {
	wrapper, err := gzhttp.NewWrapper(gzhttp.ContentTypes([]string{"text/html", "text/csv", "application/problem+json"}),
		gzhttp.MinSize(1024), gzhttp.RandomJitter(64, 0, false))
	if err != nil {
		panic(err) // the options are constants, which a test has tried
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			plain := c.Response().Writer
			defer func() { c.Response().Writer = plain }()
			wrapper(http.HandlerFunc(func(packed http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.Response().Writer = packed
				if err := next(c); err != nil {
					c.Error(err) // here, while there is somebody to pack it
				}
			})).ServeHTTP(plain, c.Request())
			return nil
		}
	}
}
