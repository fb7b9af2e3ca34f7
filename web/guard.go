package web

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// maxForm bounds the body of a form, in bytes; maxWideForm and maxWideFields that
// of one with rows. maxPlanForm is for a plan's document as indented JSON: in a
// form's encoding it has several times the bytes that the API takes.
const (
	maxForm       = 64 << 10
	maxWideForm   = 512 << 10
	MaxWideFields = 8_000
	MaxPlanForm   = 8 * plans.MaxBytes
)

// errForeignSite is the answer to a write that another site may have sent.
var errForeignSite = problem.New(problem.Forbidden,
	"this came from another site, or from a browser that does not say where it came from; open the page again and repeat it there")

// newCrossOrigin makes the guard of all writes. Behind a proxy that names
// another host the public address is the one that browsers send.
func newCrossOrigin(publicURL string) (*http.CrossOriginProtection, error) {
	guard := http.NewCrossOriginProtection()
	if publicURL == "" {
		return guard, nil
	}
	u, err := url.Parse(publicURL)
	if err != nil {
		return nil, err
	}
	return guard, guard.AddTrustedOrigin(u.Scheme + "://" + u.Host)
}

func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// guard refuses writes of other sites. A write that carries a session and does
// not say where it comes from is refused too: every browser of today says it.
func (w *Shell) guard(r *http.Request) error {
	if reads(r.Method) {
		return nil
	}
	if err := w.crossOrigin.Check(r); err != nil {
		return errForeignSite
	}
	if _, ok := w.token(r); ok && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return errForeignSite
	}
	return nil
}

// Form reads the form of a write: the fields named, each at most once, and no
// others, so that nothing can be set that the page does not show.
func Form(c echo.Context, fields ...string) (url.Values, error) {
	return StrictForm(c, maxForm, len(fields), func(name string) bool { return slices.Contains(fields, name) })
}

// WideForm is form for pages whose fields come in rows: known says which names
// there are. It takes 512 KiB and 8,000 fields.
func WideForm(c echo.Context, known func(name string) bool) (url.Values, error) {
	return StrictForm(c, maxWideForm, MaxWideFields, known)
}

// StrictForm reads a form of so many bytes and fields.
func StrictForm(c echo.Context, bytes int64, fields int, known func(name string) bool) (url.Values, error) {
	r := c.Request()
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/x-www-form-urlencoded" {
		if r.ContentLength != 0 || fields > 0 {
			return nil, problem.New(problem.Unsupported, "a form is sent as application/x-www-form-urlencoded")
		}
	}
	r.Body = http.MaxBytesReader(c.Response(), r.Body, bytes)
	if err := r.ParseForm(); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, problem.New(problem.TooLarge, "this form has at most %d KiB", bytes>>10)
		}
		return nil, problem.New(problem.Malformed, "the form cannot be read")
	}
	if r.URL.RawQuery != "" {
		return nil, problem.New(problem.Malformed, "a write takes no query")
	}
	for name, values := range r.PostForm {
		switch {
		case !known(name):
			return nil, problem.New(problem.Malformed, "the form has a field that the page does not")
		case len(values) != 1 || !utf8.ValidString(values[0]):
			return nil, problem.New(problem.Malformed, "the field %s is there twice, or is not UTF-8", name)
		}
	}
	if len(r.PostForm) > fields {
		return nil, problem.New(problem.TooLarge, "this form has at most %d fields", fields)
	}
	return r.PostForm, nil
}

// maxNextQuery bounds what of an address a sign-in remembers, in bytes.
const maxNextQuery = 2048

// SafeNext is where a sign-in may lead: a page of ours that needs a session, with
// what narrows it; "" for anything else. A query that leads on by itself, or that
// says what was done, is nothing that a page was narrowed by.
func (w *Shell) SafeNext(raw string) string {
	path, query, _ := strings.Cut(raw, "?")
	for _, row := range w.rows {
		if row.Method != http.MethodGet || !row.needsSession() || !matches(row.Path, path) {
			continue
		}
		if query == "" {
			return path
		}
		q, err := url.ParseQuery(query)
		if err != nil || len(query) > maxNextQuery || q.Has("next") || q.Has("done") {
			return ""
		}
		return path + "?" + q.Encode()
	}
	return ""
}

// matches reports whether path is of the form of a route. Segments in the place
// of parameters have only letters, digits and hyphens: ids and slugs.
func matches(route, path string) bool {
	want, got := strings.Split(route, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if strings.HasPrefix(want[i], ":") {
			if got[i] == "" || len(got[i]) > problem.MaxSlug || strings.Trim(got[i], "-0123456789abcdefghijklmnopqrstuvwxyz") != "" {
				return false
			}
		} else if want[i] != got[i] {
			return false
		}
	}
	return true
}
