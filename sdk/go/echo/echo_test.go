package echo_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	headgate "github.com/headgate/headgate/sdk/go"
	headgateecho "github.com/headgate/headgate/sdk/go/echo"
)

func TestMiddleware(t *testing.T) {
	answer := `{"kind":"decision","allowed":true,"reason":"ok","retry_after_ms":0,"limits":[]}`
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"p";r=0;t=1`)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	client, err := headgate.New(headgate.Config{URL: server.URL, Token: "hg_op_x", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Use(headgateecho.Middleware(headgate.MiddlewareConfig{Client: client}))
	e.GET("/items/:id", func(c echo.Context) error {
		d, _ := headgate.FromContext(c.Request().Context())
		return c.String(http.StatusOK, fmt.Sprint(c.Param("id"), " ", d.Reason))
	})
	call := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/items/7", nil))
		return w
	}
	if w := call(); w.Code != 200 || w.Body.String() != "7 ok" || w.Header().Get("RateLimit") != `"p";r=0;t=1` {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	status = http.StatusTooManyRequests
	answer = `{"kind":"denial","allowed":false,"status":429,"title":"Quota exceeded","reason":"over_limit","retry_after_ms":1,"limits":[]}`
	if w := call(); w.Code != 429 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}
