package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// ErrNoPage is the answer for everything that is not there, or that the visitor
// may not know of.
var ErrNoPage = problem.New(problem.NotFound, "there is no such page")

// A answer is how a kind of problem is told: the name of its type in
// problem.Catalogue, whose status it has, and the title of its page.
type answer struct{ name, title string }

var answers = map[problem.Kind]answer{
	problem.Internal:        {name: "internal-error", title: "Something went wrong here"},
	problem.Malformed:       {name: "malformed-request", title: "This cannot be read"},
	problem.Invalid:         {name: "invalid-input", title: "This cannot be done"},
	problem.Unauthenticated: {name: "unauthenticated", title: "Sign in first"},
	problem.Forbidden:       {name: "forbidden", title: "You may not do this"},
	problem.NotFound:        {name: "not-found", title: "There is no such page"},
	problem.Conflict:        {name: "conflict", title: "This cannot be done now"},
	problem.Stale:           {name: "precondition-failed", title: "Somebody else was quicker"},
	problem.TooLarge:        {name: "request-too-large", title: "This is too large"},
	problem.Unsupported:     {name: "unsupported-media-type", title: "This cannot be read"},
	problem.NotAllowed:      {name: "method-not-allowed", title: "This cannot be done here"},
	problem.Unavailable:     {name: "unavailable", title: "Not available at the moment"},
}

// kindOf a failure. echo's own errors are those of its router.
func kindOf(err error) problem.Kind {
	if h := (*echo.HTTPError)(nil); errors.As(err, &h) {
		switch h.Code {
		case http.StatusNotFound:
			return problem.NotFound
		case http.StatusMethodNotAllowed:
			return problem.NotAllowed
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.Unavailable // of serve: nothing else here has a deadline
	}
	return problem.Of(err)
}

// fail answers what no page does. It is echo's error handler: for a browser
// every failure is a page, for everyone else a problem, as every path that is
// not the API's comes here.
func (w *Shell) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	kind := kindOf(err)
	known, ok := answers[kind]
	if !ok {
		kind, known = problem.Internal, answers[problem.Internal]
	}
	t, _ := problem.TypeByName(known.name)
	w.setHeaders(c)
	c.Response().Header().Set("Cache-Control", "no-store")
	id := RequestID(c)
	switch kind {
	case problem.Internal, problem.Unavailable:
		w.cfg.Logger.Error("page failed", "request_id", id, "path", c.Path(), "error", err)
	case problem.NotAllowed:
		if allow, ok := c.Get(echo.ContextKeyHeaderAllow).(string); ok {
			c.Response().Header().Set("Allow", allow)
		}
	}
	if (kind != problem.NotAllowed || reads(c.Request().Method)) && strings.Contains(c.Request().Header.Get("Accept"), "text/html") {
		if err := w.Render(c, t.Status, w.errorPage(c, kind, known, t, err)); err == nil {
			return
		}
	}
	body, _ := json.Marshal(struct { // strings and a number: no error
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		RequestID string `json:"request_id"`
	}{strings.TrimSuffix(w.cfg.PublicURL, "/") + "/docs/problems/" + t.Name, t.Title, t.Status, id})
	_ = c.Blob(t.Status, "application/problem+json", body) // the client is gone if this fails
}

// errorPage is the page of a failure. That of what is not there says nothing of
// what was asked for: it is the same for all that is hidden and all that is not.
func (w *Shell) errorPage(c echo.Context, kind problem.Kind, known answer, t problem.Type, err error) templ.Component {
	page := w.Page(c, known.title)
	if kind == problem.NotFound {
		page.Path, page.Self = "/", "/"
		return views.NotFoundPage(page)
	}
	e := views.Error{Status: strconv.Itoa(t.Status), Title: known.title, Back: "Back to the beginning", BackURL: "/", RequestID: RequestID(c)}
	if told := (*problem.Problem)(nil); errors.As(err, &told) && kind != problem.Internal {
		e.Text = Sentence(told.Message)
	}
	switch kind {
	case problem.Internal:
		e.Text = "It is not your fault. Try again; if it stays, tell whoever runs Headgate the number of the request."
	case problem.Unavailable:
		e.Text = "The database is away, or this node is starting or stopping. Try again in a moment. Checks of the API go on meanwhile."
		e.Back, e.BackURL = "Try again", page.Self
		if !reads(c.Request().Method) {
			e.BackURL = "/" // a write is not repeated by a link
		}
	case problem.Forbidden:
		e.Text += " Ask an owner of Headgate, or an admin of your tenant, if you need it."
	case problem.Malformed:
		e.Text += " Nothing was changed. Go back, reload the page and try once more."
	case problem.NotAllowed:
		e.Text = "This address takes what a form sends, and is no page of its own. Go back to the page with the form."
	case problem.Stale:
		e.Text = "Somebody else changed this since you opened it, so nothing was changed. Look at it again first."
	}
	return views.ErrorPage(page, e)
}

// Sentence makes a problem's message one: a capital in front, a full stop behind.
func Sentence(message string) string {
	if message == "" {
		return ""
	}
	r, size := utf8.DecodeRuneInString(message)
	return EndSentence(string(unicode.ToUpper(r)) + message[size:])
}

// EndSentence ends a sentence, unless it has an end.
func EndSentence(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// recovered makes a panic of a page an error.
func recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				panic(cause)
			default:
				err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
		}()
		return next(c)
	}
}
