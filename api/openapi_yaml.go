package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate"
)

// A document contains the bytes of openapi.yaml and their entity tag, which is a part of their
// SHA-256.
type document struct {
	text []byte
	etag string
}

func newDocument() document {
	sum := sha256.Sum256(headgate.Spec)
	return document{headgate.Spec, `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// openapi is GET /openapi.yaml.
func (a *API) openapi(c echo.Context) error {
	h := c.Response().Header()
	h.Set("ETag", a.spec.etag)
	h.Set("Cache-Control", "no-cache")
	if matches(c.Request().Header.Values("If-None-Match"), a.spec.etag, true) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, "application/yaml", a.spec.text)
}
