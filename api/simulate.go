package api

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
)

// simulate is POST /v1/simulate. It runs one scenario.
func (a *API) simulate(c echo.Context) error {
	if a.cfg.Simulate == nil {
		return problem.New(problem.Unavailable, "this node does not simulate")
	}
	var body bytes.Buffer
	who, _ := c.Request().Context().Value(callerKey{}).(caller)
	held, err := a.readBody(&body, c.Request(), who, maxBody)
	if err != nil {
		return err
	}
	defer a.freeBody(who, held)
	answer, err := a.cfg.Simulate(c.Request().Context(), body.Bytes())
	if p := (*problem.Problem)(nil); errors.As(err, &p) && p.Kind == problem.Invalid {
		fault := *p // the API reports a fault in a scenario as 400, even if the service reports 422
		fault.Kind = problem.Malformed
		return &fault
	}
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", bytes.TrimRight(answer, "\n"))
}
