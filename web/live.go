package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	// maxStreams is the number of live pages of a node. A page above it is answered
	// "not available" and stands still.
	maxStreams = 1000
	// maxTenantStreams is the part of them that the people of all tenants may have.
	// The rest is for the operator's people.
	maxTenantStreams = 800
	// maxOwnStreams is the number of live pages of one person, and
	// maxPartyStreams that of the people of one tenant.
	maxOwnStreams   = 40
	maxPartyStreams = 100
	// heartbeat keeps proxies from closing a stream that has nothing to say.
	heartbeat = 15 * time.Second
	// recheck is how often a stream asks whether its session still lives.
	recheck = 15 * time.Second
	// WriteWithin is how long a browser may take to take what it is sent.
	WriteWithin = 10 * time.Second
)

type streams struct {
	recheck time.Duration // 0: as often as the constant says

	mu       sync.Mutex
	open     int
	tenants  int            // those of the people of tenants
	own      map[string]int // of each person, by the user's id
	party    map[string]int // of each tenant, by its id
	drawings map[string]*drawing
}

// enter counts a stream of a person in, and gives what counts it out; false when
// there are as many as there may be.
func (s *streams) enter(u accounts.User) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own[u.ID] >= maxOwnStreams || s.open >= maxStreams ||
		u.TenantID != "" && (s.party[u.TenantID] >= maxPartyStreams || s.tenants >= maxTenantStreams) {
		return nil, false
	}
	if s.own == nil {
		s.own = map[string]int{}
	}
	s.count(u, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count(u, -1)
	}, true
}

func (s *streams) count(u accounts.User, n int) {
	s.open += n
	if s.own[u.ID] += n; s.own[u.ID] == 0 {
		delete(s.own, u.ID)
	}
	if u.TenantID == "" {
		return
	}
	if s.party == nil {
		s.party = map[string]int{}
	}
	s.tenants += n
	if s.party[u.TenantID] += n; s.party[u.TenantID] == 0 {
		delete(s.party, u.TenantID)
	}
}

// A Fragment is a part of a page: the name of its event, which the page's
// sse-swap has, and what it shows.
type Fragment struct {
	Event string
	Body  templ.Component
}

// Stream sends what draw gives, first at once and then every so often; each
// fragment only when it changed. It ends when the browser leaves, the session
// ends or the node stops; when draw fails it waits and tries again.
//
// All streams of one address that people of one role and tenant have are drawn
// once. So draw may depend only on the address, the role and the tenant.
func (w *Shell) Stream(c echo.Context, every time.Duration, draw func(context.Context) ([]Fragment, error)) error {
	visitor := VisitorOf(c)
	leave, ok := w.streams.enter(visitor.User)
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
	s := &sender{to: c.Response(), control: http.NewResponseController(c.Response())}
	if err := s.write("retry: 2000\n\n"); err != nil {
		return nil // the browser is gone
	}
	same := []string{visitor.User.TenantID, string(visitor.User.Role), w.Origin(c), c.Request().URL.RequestURI()}
	me := w.streams.view(strings.Join(same, "\n"))
	defer w.streams.unview(me)
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	var spoke time.Time
	checked := time.Now()
	again := cmp.Or(w.streams.recheck, recheck)
	for {
		if time.Since(checked) >= again {
			if !w.lives(ctx, visitor) {
				return nil
			}
			checked = time.Now()
		}
		if me.due(every) {
			w.draw(ctx, me, draw)
		}
		text, changed := me.news()
		if text == "" && time.Since(spoke) >= heartbeat {
			text = ": still here\n\n"
		}
		if text != "" {
			if s.write(text) != nil {
				return nil // the browser is gone
			}
			spoke = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		case <-changed:
		}
	}
}

// draw draws once for all who view the same.
func (w *Shell) draw(ctx context.Context, me *viewer, draw func(context.Context) ([]Fragment, error)) {
	defer me.drawn()
	bounded, cancel := context.WithTimeoutCause(ctx, max(w.cfg.Timeout, 5*time.Second), ErrSlow)
	defer cancel()
	list, err := draw(bounded)
	for _, f := range list {
		if failed := me.publish(bounded, f); failed != nil {
			err = failed
		}
	}
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("a live page could not be drawn anew; it stands still", "error", err)
	}
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
