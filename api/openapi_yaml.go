package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
)

// A document holds the bytes of openapi.yaml or openapi.json. Its entity tag is a part of the
// SHA-256 hash of these bytes.
type document struct {
	mediaType string
	text      []byte
	etag      string
}

func newDocument(mediaType string, text []byte) document {
	sum := sha256.Sum256(text)
	return document{mediaType, text, `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// specYAML returns the contract as openapi.yaml, with the version of the program.
func specYAML(version string) document {
	return newDocument("application/yaml", headgate.SpecOf(version))
}

// specJSON returns the contract as openapi.json. If openapi.yaml cannot be read, it panics; a test
// ensures that it can.
func specJSON(version string) document {
	var contract any
	if err := yaml.Unmarshal(headgate.SpecOf(version), &contract); err != nil {
		panic(err)
	}
	text, err := json.Marshal(contract)
	if err != nil {
		panic(err)
	}
	return newDocument("application/json", text)
}

// serveDocument returns the handler of GET /openapi.yaml or GET /openapi.json. The handler calls
// load on the first request.
func serveDocument(load func(version string) document, version string) echo.HandlerFunc {
	once := sync.OnceValue(func() document { return load(version) })
	return func(c echo.Context) error {
		d, h := once(), c.Response().Header()
		h.Set("ETag", d.etag)
		h.Set("Cache-Control", "no-cache")
		if matches(c.Request().Header.Values("If-None-Match"), d.etag, true) {
			return c.NoContent(http.StatusNotModified)
		}
		return c.Blob(http.StatusOK, d.mediaType, d.text)
	}
}
