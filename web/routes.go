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
	// Action is what the visitor must be allowed to do; see accounts.Authorize.
	Action  accounts.Action
	Handler echo.HandlerFunc
	Kind    Kind
}

// A Kind says how serve runs a handler.
type Kind int

const (
	Bounded       Kind = iota // looks up the session; the handler has Config.Timeout
	Open                      // the same page for everybody; no session is looked up
	Slow                      // as Bounded, but the handler sets its own time limit: passwords, live streams
	Expensive                 // as Bounded, and only a few run at once
	SlowExpensive             // as Slow, and only a few run at once: downloads, replays
)

// Get returns a row for a page. GET also answers HEAD.
func Get(path string, action accounts.Action, handler echo.HandlerFunc) Route {
	return Route{Method: http.MethodGet, Path: path, Action: action, Handler: handler}
}

// Post returns a row for a write. The handler reads the form itself.
func Post(path string, action accounts.Action, handler echo.HandlerFunc) Route {
	return Route{Method: http.MethodPost, Path: path, Action: action, Handler: handler}
}

// PostForm returns a row for a write whose form has these fields, each at most
// once, and no others.
func PostForm(path string, action accounts.Action, handler func(echo.Context, url.Values) error, fields ...string) Route {
	return Post(path, action, func(c echo.Context) error {
		f, err := Form(c, fields...)
		if err != nil {
			return err
		}
		return handler(c, f)
	})
}

// As returns the row with another kind than Bounded.
func (r Route) As(k Kind) Route {
	r.Kind = k
	return r
}

func (r Route) needsSession() bool { return r.Action != accounts.Public }

// ownRoutes are the rows of the shell itself.
func (w *Shell) ownRoutes() []Route {
	const public, self = accounts.Public, accounts.Self
	rows := []Route{
		Get("/docs", public, w.docs).As(Open),
		Get("/docs/problems", public, w.problems).As(Open),
		Get("/docs/problems/:type", public, w.problemType).As(Open),
		Get("/static/:file", public, w.assets.serve).As(Open),
	}
	if w.cfg.People == nil {
		return append(rows, Get("/", public, func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/docs") }).As(Open))
	}
	return append(rows,
		Get("/", public, w.home),
		PostForm("/preferences/theme", public, w.chooseTheme, "theme", "back"),
		Get("/jump", self, w.jump),
		Get("/jump/found", self, w.jumpFragment),
	)
}
