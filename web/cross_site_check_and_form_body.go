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

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// maxForm is the maximum size of a form body in bytes. maxWideForm and MaxWideFields are the maximum size and
// the maximum number of fields of a form with rows. MaxPlanForm is the maximum size of a form that contains a
// plan as indented JSON; with indentation, JSON is several times as large.
const (
	maxForm       = 64 << 10
	maxWideForm   = 512 << 10
	MaxWideFields = 8_000
	MaxPlanForm   = 8 * plans.MaxBytes
)

// errForeignSite is the error for a write that may come from a page of another site.
var errForeignSite = problem.New(problem.Forbidden,
	"the request came from another site, or from a browser that does not send its origin; open the page again and repeat it there")

// newCrossOrigin returns the protection that rejects writes from pages of other sites. The protection also
// accepts the origin of the public URL, because a proxy may change the host name in a request.
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

// guard returns an error for a write from a page of another site. It also returns an error for a write that has
// a session cookie, but none of the headers with which browsers send the origin.
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

// Form reads a form that has only the given fields, each at most once. It returns an error if the
// form has other fields.
func Form(c echo.Context, fields ...string) (url.Values, error) {
	return StrictForm(c, maxForm, len(fields), func(name string) bool { return slices.Contains(fields, name) })
}

// WideForm reads a form with rows, whose fields have numbers in their names. known reports whether
// a field may exist.
func WideForm(c echo.Context, known func(name string) bool) (url.Values, error) {
	return StrictForm(c, maxWideForm, MaxWideFields, known)
}

// StrictForm reads a form with at most the given numbers of bytes and fields. known reports whether
// a field may exist.
func StrictForm(c echo.Context, bytes int64, fields int, known func(name string) bool) (url.Values, error) {
	r := c.Request()
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/x-www-form-urlencoded" {
		if r.ContentLength != 0 || fields > 0 {
			return nil, problem.New(problem.Unsupported, "the form must be application/x-www-form-urlencoded")
		}
	}
	r.Body = http.MaxBytesReader(c.Response(), r.Body, bytes)
	if err := r.ParseForm(); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, problem.New(problem.TooLarge, "the form must have at most %d KiB", bytes>>10)
		}
		return nil, problem.New(problem.Malformed, "the form cannot be read")
	}
	if r.URL.RawQuery != "" {
		return nil, problem.New(problem.Malformed, "the address of a form must not have a query")
	}
	for name, values := range r.PostForm {
		switch {
		case !known(name):
			return nil, problem.New(problem.Malformed, "the form has an unknown field")
		case len(values) != 1 || !utf8.ValidString(values[0]):
			return nil, problem.New(problem.Malformed, "the field %s is repeated or not UTF-8", name)
		}
	}
	if len(r.PostForm) > fields {
		return nil, problem.New(problem.TooLarge, "the form must have at most %d fields", fields)
	}
	return r.PostForm, nil
}

// maxNextQuery is the maximum length of the query of an address to which the sign-in page
// redirects, in bytes.
const maxNextQuery = 2048

// SafeNext returns raw if it is an address to which the sign-in page may redirect: a page of Headgate that
// needs a session. For any other address it returns "". Without this check, a link could redirect people to
// another site after they signed in.
func (w *Shell) SafeNext(raw string) string {
	path, query, _ := strings.Cut(raw, "?")
	for _, row := range w.rows {
		if row.Method != http.MethodGet || row.Action == accounts.Public || !matches(row.Path, path) {
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

// matches reports whether a path matches the path of a route. A parameter of the route matches an ID or a slug:
// letters, digits and hyphens.
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
