package web

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
)

// A Route is one row of the route table.
type Route struct {
	Method, Path string
	// Action is the action that the route performs. A visitor needs permission for it; see
	// accounts.Authorize.
	Action  accounts.Action
	Handler echo.HandlerFunc
	Kind    Kind
}

// A Kind determines how serve runs a handler: which time limit it has, whether serve looks up
// the session, and whether the handler needs a slot for expensive pages.
type Kind int

const (
	Bounded       Kind = iota // serve looks up the session, and Config.Timeout bounds the handler
	Open                      // serve looks up no session, because the page is the same for all visitors
	Slow                      // like Bounded, but the handler sets its own time limit, for example for passwords and live streams
	Expensive                 // like Bounded, but only a few such handlers run at the same time
	SlowExpensive             // like Slow, but only a few such handlers run at the same time, for example downloads
)

// Get returns the row of a page in the route table. The row also answers HEAD requests.
func Get(path string, action accounts.Action, handler echo.HandlerFunc) Route {
	return Route{Method: http.MethodGet, Path: path, Action: action, Handler: handler}
}

// Post returns the row of a write in the route table. The handler reads the form itself.
func Post(path string, action accounts.Action, handler echo.HandlerFunc) Route {
	return Route{Method: http.MethodPost, Path: path, Action: action, Handler: handler}
}

// PostForm returns the row of a write in the route table. serve reads the form and passes it to
// the handler. The form may have only the given fields, each at most once.
func PostForm(path string, action accounts.Action, handler func(echo.Context, url.Values) error, fields ...string) Route {
	return Post(path, action, func(c echo.Context) error {
		f, err := Form(c, fields...)
		if err != nil {
			return err
		}
		return handler(c, f)
	})
}

// As returns a copy of the row with another kind. A row that was not made with As is Bounded.
func (r Route) As(k Kind) Route {
	r.Kind = k
	return r
}

// ownRoutes are the rows of the shell itself, which belong to no page group.
func (w *Shell) ownRoutes() []Route {
	const public = accounts.Public
	rows := []Route{
		Get("/static/:file", public, w.assets.serve).As(Open),
	}
	if w.cfg.People == nil {
		return append(rows, Get("/", public, func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/docs") }).As(Open))
	}
	return append(rows,
		Get("/", public, w.home),
		PostForm("/preferences/theme", public, w.chooseTheme, "theme", "back"),
		PostForm("/preferences/zone", public, w.chooseZone, "zone", "back"),
	)
}
