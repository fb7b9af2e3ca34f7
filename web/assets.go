package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web/views"
)

// assets contains the embedded static files. The URL of each file includes a hash of its
// content, so that browsers can cache the file forever. The style sheets in static/css are
// joined to headgate.css, ordered by their names. Each style sheet becomes one cascade
// layer.
type assets struct {
	byURL map[string]asset
	urls  map[string]string // file name -> URL
}

type asset struct {
	body        []byte
	gzipped     []byte // nil if it is not smaller
	contentType string
}

// contentTypes maps file extensions to media types. It replaces the table of the operating
// system, which is not the same on all machines.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".woff2": "font/woff2",
	".txt": "text/plain; charset=utf-8",
}

func newAssets(files fs.FS) (*assets, error) {
	a := &assets{byURL: map[string]asset{}, urls: map[string]string{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".css" {
			return err
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return a.add(path.Base(name), body)
	})
	if err != nil {
		return nil, fmt.Errorf("read static files: %w", err)
	}
	css, err := views.Stylesheet(files)
	if err != nil {
		return nil, fmt.Errorf("read style sheets: %w", err)
	}
	return a, a.add("headgate.css", a.linked(css))
}

// linked replaces the file names in a style sheet with the URLs of these files, which have
// hashes.
func (a *assets) linked(css []byte) []byte {
	for name, url := range a.urls {
		css = bytes.ReplaceAll(css, []byte(`url("`+name+`")`), []byte(`url("`+url+`")`))
	}
	return css
}

// add adds a file.
func (a *assets) add(name string, body []byte) error {
	sum := sha256.Sum256(body)
	ext := path.Ext(name)
	hashed := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
	file := asset{body: body, contentType: contentTypes[ext]}
	if file.contentType == "" {
		file.contentType = mime.TypeByExtension(ext)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(body); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if packed.Len() < len(body)*9/10 {
		file.gzipped = packed.Bytes()
	}
	a.byURL[hashed] = file
	a.urls[name] = "/static/" + hashed
	return nil
}

// url returns the address of a static file.
func (a *assets) url(name string) string { return a.urls[name] }

func (a *assets) serve(c echo.Context) error {
	file, ok := a.byURL[c.Param("file")]
	if !ok {
		return echo.ErrNotFound
	}
	h := c.Response().Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	if file.gzipped != nil {
		h.Add("Vary", "Accept-Encoding")
		if strings.Contains(c.Request().Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			return c.Blob(http.StatusOK, file.contentType, file.gzipped)
		}
	}
	return c.Blob(http.StatusOK, file.contentType, file.body)
}
