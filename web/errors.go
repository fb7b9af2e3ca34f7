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

// ErrNoPage is the error for a page that does not exist. It is also the error for a page whose
// existence the visitor must not find out.
var ErrNoPage = problem.New(problem.NotFound, "this page does not exist")

// An answer is the title of the error page for a kind of problem. name is the name of the problem
// type in problem.Catalog, which also has the HTTP status.
type answer struct{ name, title string }

var answers = map[problem.Kind]answer{
	problem.Internal:        {name: "internal-error", title: "Internal error"},
	problem.Malformed:       {name: "malformed-request", title: "The request cannot be read"},
	problem.Invalid:         {name: "invalid-input", title: "The input is invalid"},
	problem.Unauthenticated: {name: "unauthenticated", title: "Sign in first"},
	problem.Forbidden:       {name: "forbidden", title: "Access denied"},
	problem.NotFound:        {name: "not-found", title: "Page not found"},
	problem.Conflict:        {name: "conflict", title: "Not possible now"},
	problem.Stale:           {name: "precondition-failed", title: "The object changed in the meantime"},
	problem.TooLarge:        {name: "request-too-large", title: "The request is too large"},
	problem.Unsupported:     {name: "unsupported-media-type", title: "The format is not supported"},
	problem.NotAllowed:      {name: "method-not-allowed", title: "Method not allowed"},
	problem.Unavailable:     {name: "unavailable", title: "Temporarily unavailable"},
}

// kindOf returns the kind of an error. For an error of echo, it returns the kind that
// corresponds to the status.
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
		return problem.Unavailable // the deadline of serve
	}
	return problem.Of(err)
}

// fail writes the response to a request that ended with an error. echo calls it. A browser gets a
// page. Other clients get a problem (RFC 9457), because all requests for paths that the API does
// not serve come here too.
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
		Kind      string `json:"kind"`
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Detail    string `json:"detail"`
		RequestID string `json:"request_id"`
	}{"problem", strings.TrimSuffix(w.cfg.PublicURL, "/") + "/docs/problems/" + t.Name, t.Title, t.Status, known.title, id})
	_ = c.Blob(t.Status, "application/problem+json", body) // the client is gone if this fails
}

// errorPage returns the page for an error. For NotFound, the page is the same for every address.
// Otherwise it would show which objects exist.
func (w *Shell) errorPage(c echo.Context, kind problem.Kind, known answer, t problem.Type, err error) templ.Component {
	page := w.Page(c, known.title)
	if kind == problem.NotFound {
		page.Path, page.Self = "/", "/"
		return views.NotFoundPage(page)
	}
	e := views.Error{Status: strconv.Itoa(t.Status), Title: known.title, Back: "Back to the start page", BackURL: "/", RequestID: RequestID(c)}
	if p := (*problem.Problem)(nil); errors.As(err, &p) && kind != problem.Internal {
		e.Text = Sentence(p.Message)
	}
	switch kind {
	case problem.Internal:
		e.Text = "Try again. If the error persists, send the request ID to the operator of Headgate."
	case problem.Unavailable:
		e.Text = "The database does not answer, or this node is starting or stopping. Try again in a moment. Checks continue."
		e.Back, e.BackURL = "Try again", page.Self
		if !reads(c.Request().Method) {
			e.BackURL = "/" // a link cannot send a form again
		}
	case problem.Forbidden:
		e.Text += " If you need access, ask an owner of Headgate or an admin of your tenant."
	case problem.Malformed:
		e.Text += " Nothing was changed. Go back, reload the page, and try again."
	case problem.NotAllowed:
		e.Text = "This address only accepts forms. Go back to the page with the form."
	case problem.Stale:
		e.Text = "Another person changed this after you opened it. Nothing was changed. Reload the page and check it first."
	}
	return views.ErrorPage(page, e)
}

// Sentence returns a message with a capital letter and a full stop.
func Sentence(message string) string {
	if message == "" {
		return ""
	}
	r, size := utf8.DecodeRuneInString(message)
	return EndSentence(string(unicode.ToUpper(r)) + message[size:])
}

// EndSentence adds a full stop, unless the sentence already ends with a full stop or a question
// mark.
func EndSentence(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// recovered turns a panic of a page into an error.
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
