package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// assets are the embedded static files under names that carry a hash of their
// content, so that browsers may keep them for ever.
type assets struct {
	byURL map[string]asset
	urls  map[string]string // file name -> URL
}

type asset struct {
	body        []byte
	contentType string
}

func newAssets(files fs.FS) (*assets, error) {
	a := &assets{byURL: map[string]asset{}, urls: map[string]string{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(name)
		base := path.Base(name)
		hashed := strings.TrimSuffix(base, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.byURL[hashed] = asset{body, mime.TypeByExtension(ext)}
		a.urls[base] = "/static/" + hashed
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read static files: %w", err)
	}
	return a, nil
}

// url of a static file; a name that is not there is a bug that the tests find.
func (a *assets) url(name string) string { return a.urls[name] }

func (a *assets) serve(c echo.Context) error {
	file, ok := a.byURL[c.Param("file")]
	if !ok {
		return echo.ErrNotFound
	}
	c.Response().Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	return c.Blob(http.StatusOK, file.contentType, file.body)
}
