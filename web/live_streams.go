package web

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// A live page gets its changed parts as server-sent events that contain HTML.

const (
	// maxStreams is the maximum number of live pages that a node serves at the same time. Further pages
	// get the error Unavailable and are not updated.
	maxStreams = 1000
	// maxTenantStreams is the maximum for the members of all tenants together. The rest of maxStreams is
	// reserved for the operator's people.
	maxTenantStreams = 800
	// maxOwnStreams is the maximum number of live pages for one person. maxPartyStreams is the maximum for
	// all members of one tenant together.
	maxOwnStreams   = 40
	maxPartyStreams = 100
	// heartbeat is the interval of the event named beat. The event prevents proxies from closing a stream
	// without other events. If three beats are missing, the page shows that the connection is lost.
	heartbeat = 15 * time.Second
	// recheck is the interval at which a stream checks that its session has not ended. At each check, it
	// also records that the session is in use. linkRecheck is the interval for a shared link.
	recheck     = 15 * time.Second
	linkRecheck = 3 * time.Second
	// WriteWithin is the maximum time for writing one part of a response to a slow browser.
	WriteWithin = 10 * time.Second
)

type streams struct {
	recheck time.Duration // if not 0, replaces recheck and linkRecheck; set by tests

	mu       sync.Mutex
	open     int
	tenants  int            // number of open streams of members of tenants
	own      map[string]int // number of open streams of each person, by user id
	party    map[string]int // number of open streams of each tenant, by tenant id
	drawings map[string]*drawing
}

// enter counts a new stream of a user. The caller calls leave when the stream ends. ok is false if a
// maximum is reached.
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

// A Fragment is a part of a live page. Body is the new HTML. Event is the name of the server-sent event
// that carries this part; the attribute sse-swap in the page has the same name.
type Fragment struct {
	Event string
	Body  templ.Component
}

// Stream calls draw at once and then at the interval every, and sends each fragment that has
// changed. It ends when the browser disconnects, the session ends or the node stops. If draw
// fails, Stream logs the error and retries at the next interval.
//
// All streams with the same address, time zone, role and tenant share one call of draw.
// Therefore, the result of draw must depend only on these four.
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
		return nil // the browser disconnected
	}
	again := recheck
	if visitor.Display != nil {
		again = linkRecheck
		if !w.lives(ctx, visitor) {
			return s.end(ctx, visitor)
		}
	}
	same := []string{visitor.User.TenantID, string(visitor.User.Role), w.Origin(c), c.Request().URL.RequestURI(), views.Zone(ctx).String()}
	me := w.streams.view(strings.Join(same, "\n"))
	defer w.streams.unview(me)
	ticks, checks := time.NewTicker(every), time.NewTicker(cmp.Or(w.streams.recheck, again))
	defer ticks.Stop()
	defer checks.Stop()
	var beat time.Time
	for {
		if me.due(every) {
			w.draw(ctx, me, draw)
		}
		text, changed := me.news()
		if time.Since(beat) >= heartbeat {
			text += eventText("beat", " ")
			beat = time.Now()
		}
		if text != "" && s.write(text) != nil {
			return nil // the browser disconnected
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		case <-changed:
		case <-checks.C:
			if !w.lives(ctx, visitor) {
				return s.end(ctx, visitor)
			}
		}
	}
}

// end ends a stream whose session or link has ended. A display, which is a page of a shared link, shows
// a message then, because no person is there to reload it.
func (s *sender) end(ctx context.Context, v Visitor) error {
	if v.Display == nil {
		return nil
	}
	var b bytes.Buffer
	if err := views.SharedEndedBody().Render(ctx, &b); err != nil {
		return err
	}
	_ = s.write(eventText(views.SharedEnded, b.String()) + eventText(views.SharedClosed, " ")) // fails if the browser disconnected
	return nil
}

// draw calls the function draw and publishes the fragments to all streams that share the drawing.
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
		w.cfg.Logger.Warn("cannot render the live page again; the page keeps its last content", "error", err)
	}
}

// lives reports whether the session or the link of a visitor is still valid. It also records that the
// session is in use, so that the session does not become idle while a live page is open. The session
// still ends at its ExpiresAt.
func (w *Shell) lives(ctx context.Context, v Visitor) bool {
	bounded, cancel := context.WithTimeoutCause(ctx, w.cfg.Timeout, ErrSlow)
	defer cancel()
	if v.Display != nil {
		return !problem.Is(v.Display.Keep(bounded), problem.NotFound)
	}
	err := w.cfg.People.KeepSession(bounded, v.Session)
	// If the database is unavailable, the stream continues until the next check.
	return err == nil || !problem.Is(err, problem.Unauthenticated) && ctx.Err() == nil
}

// A sender writes events to one browser.
type sender struct {
	to      http.ResponseWriter
	control *http.ResponseController
}

func (s *sender) write(text string) error {
	// In tests, some writers have no deadlines. The timeouts of the connection then apply.
	_ = s.control.SetWriteDeadline(time.Now().Add(WriteWithin))
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// compressed returns the middleware that compresses pages. It makes the length of a response vary
// randomly. Otherwise the length could reveal secrets on a page that also contains text chosen by an
// attacker (BREACH). It does not compress streams, or files that are already compressed.
func compressed() echo.MiddlewareFunc {
	wrapper, err := gzhttp.NewWrapper(gzhttp.ContentTypes([]string{"text/html", "text/csv", "application/problem+json"}),
		gzhttp.MinSize(1024), gzhttp.RandomJitter(64, 0, false))
	if err != nil {
		panic(err) // does not happen: the options are constants, and a test checks them
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			plain := c.Response().Writer
			defer func() { c.Response().Writer = plain }()
			wrapper(http.HandlerFunc(func(packed http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.Response().Writer = packed
				if err := next(c); err != nil {
					c.Error(err) // write the error page here, so that it is compressed too
				}
			})).ServeHTTP(plain, c.Request())
			return nil
		}
	}
}
