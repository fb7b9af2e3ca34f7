package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/web/views"
)

// errorTypes are the names in problem.Catalogue of the answers that are no page.
var errorTypes = map[int]string{
	http.StatusNotFound:         "not-found",
	http.StatusMethodNotAllowed: "method-not-allowed",
}

// fail answers what no page does. It is echo's error handler: an address that
// is nobody's is a page for a browser and a problem for everyone else, as every
// path that is not the API's comes here.
func (w *Web) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	name := "internal-error"
	if h := (*echo.HTTPError)(nil); errors.As(err, &h) && errorTypes[h.Code] != "" {
		name = errorTypes[h.Code]
	}
	t, _ := problem.TypeByName(name)
	setPageHeaders(c.Response().Header())
	if allow, ok := c.Get(echo.ContextKeyHeaderAllow).(string); ok && t.Status == http.StatusMethodNotAllowed {
		c.Response().Header().Set("Allow", allow)
	}
	if t.Status == http.StatusNotFound && strings.Contains(c.Request().Header.Get("Accept"), "text/html") {
		if err = w.render(c, t.Status, views.NotFoundPage(w.page(c, "Not found"))); err == nil {
			return
		}
	}
	w.problem(c, t, err)
}

// problem answers with an RFC 9457 problem.
func (w *Web) problem(c echo.Context, t problem.Type, cause error) {
	id := uuid.NewString()
	if t.Status == http.StatusInternalServerError {
		w.cfg.Logger.Error("page failed", "request_id", id, "path", c.Path(), "error", cause)
	}
	body, _ := json.Marshal(struct { // strings and a number: no error
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		RequestID string `json:"request_id"`
	}{strings.TrimSuffix(w.cfg.PublicURL, "/") + "/docs/problems/" + t.Name, t.Title, t.Status, id})
	h := c.Response().Header()
	h.Set("X-Request-Id", id)
	h.Set("Cache-Control", "no-store")
	_ = c.Blob(t.Status, "application/problem+json", body) // the client is gone if this fails
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
				err = fmt.Errorf("panic: %v", cause)
			}
		}()
		return next(c)
	}
}
