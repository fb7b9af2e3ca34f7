package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

const (
	// demoAskedEvery is how often the database is asked at most whether there is a
	// demo, demoWithin how long a page waits for that.
	demoAskedEvery = 10 * time.Second
	demoWithin     = 250 * time.Millisecond
	// removeWithin bounds the removal of the demo.
	removeWithin = 2 * time.Minute
)

func (w *Web) demoRoutes() []row {
	return []row{
		{http.MethodGet, "/demo/remove", accounts.PlansWrite, w.removeDemoForm, bounded},
		{http.MethodPost, "/demo/remove", accounts.PlansWrite, w.removeDemo, slow},
	}
}

// demoSeen is whether there is a demo, as it was last told.
type demoSeen struct {
	asking  sync.Mutex // held by the one page that asks
	mu      sync.Mutex
	at      time.Time
	present bool
}

// demoPresent tells whether there is demo data. A database that does not answer
// at once leaves it at what was known.
func (w *Web) demoPresent(ctx context.Context) bool {
	if w.cfg.Demo == nil {
		return false
	}
	s, now := &w.demo, w.cfg.Now()
	s.mu.Lock()
	fresh, present := !s.at.IsZero() && now.Sub(s.at) < demoAskedEvery, s.present
	s.mu.Unlock()
	if fresh || !s.asking.TryLock() {
		return present
	}
	defer s.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, demoWithin)
	defer cancel()
	info, err := w.cfg.Demo.Present(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at = now; err == nil {
		s.present = info.Present
	}
	return s.present
}

// demoView says what would be removed; false when there is nothing.
func (w *Web) demoView(ctx context.Context) (views.Confirm, bool, error) {
	v := views.Confirm{
		Title: "Remove the demo data?", Button: "Remove the demo data", Bad: true, Action: "/demo/remove", Back: "/", Hidden: []views.Hidden{{Name: "sure", Value: "yes"}},
		Text: []string{
			"Everything that the demo made is removed: its tenants with their keys, members, overrides, lists and blocks, its plans, and what was counted of them. Nothing else is touched.",
			"This cannot be undone. The audit log keeps its lines.",
		},
	}
	if w.cfg.Demo == nil {
		return v, false, nil
	}
	info, err := w.cfg.Demo.Present(ctx)
	if err != nil || !info.Present {
		return v, false, err
	}
	keys := 0
	for _, made := range info.Tenants {
		if made.ID == "" {
			continue // it is being made
		}
		list, err := w.cfg.Tenants.Keys(ctx, made.ID, tenants.Filter{Limit: 1000})
		if err != nil && !problem.Is(err, problem.NotFound) {
			return v, false, err
		}
		keys += len(list)
	}
	v.Facts = []views.Fact{
		{Name: "Tenants", Value: madeWords(info.Tenants)},
		{Name: "Plans", Value: madeWords(info.Plans)},
		{Name: "API keys", Value: fmt.Sprint(keys)},
	}
	return v, true, nil
}

// madeWords are how many there are, with their slugs.
func madeWords(list []demo.Made) string {
	if len(list) == 0 {
		return "none"
	}
	slugs := make([]string, len(list))
	for i, m := range list {
		slugs[i] = m.Slug
	}
	return fmt.Sprintf("%d: %s", len(list), strings.Join(slugs, ", "))
}

func (w *Web) removeDemoForm(c echo.Context) error {
	v, there, err := w.demoView(c.Request().Context())
	if err != nil {
		return err
	}
	if !there {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	return w.render(c, http.StatusOK, views.ConfirmPage(w.page(c, "Remove the demo data"), v))
}

// removeDemo is POST /demo/remove. The button in the banner asks first, the one
// of the page that it leads to does it.
func (w *Web) removeDemo(c echo.Context) error {
	f, err := form(c, "sure")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(c.Request().Context(), removeWithin, errSlow)
	defer cancel()
	v, there, err := w.demoView(ctx)
	if err != nil {
		return err
	}
	if !there {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	if f.Get("sure") != "yes" {
		return c.Redirect(http.StatusSeeOther, "/demo/remove")
	}
	_, err = w.cfg.Demo.Remove(ctx)
	w.demo.mu.Lock()
	w.demo.at = time.Time{}
	w.demo.mu.Unlock()
	if err != nil && !problem.Is(err, problem.NotFound) { // NotFound: somebody was quicker
		list, status, err := places{}.tell(err)
		if err != nil {
			return err
		}
		v.Faults = list
		return w.render(c, status, views.ConfirmPage(w.page(c, "Remove the demo data"), v))
	}
	w.cfg.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, "/tenants?done=demo-removed")
}
