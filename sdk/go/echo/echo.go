// Package echo is the middleware of Headgate for echo. It is a separate module, so that
// the client has no dependencies.
package echo

import (
	"github.com/labstack/echo/v4"

	headgate "github.com/headgate/headgate/sdk/go"
)

// Middleware checks each request before echo's handler serves it. The options are those
// of headgate.Middleware; headgate.FromContext returns the decision.
func Middleware(config headgate.MiddlewareConfig) echo.MiddlewareFunc {
	return echo.WrapMiddleware(headgate.Middleware(config))
}
