package web

import (
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web/views"
)

// PageRows is how many rows a list shows on one page.
const PageRows = 50

// After returns the cursor in the address of a list: the id of the last row of the previous
// page, or "" on the first page.
func After(c echo.Context) string {
	if after := c.QueryParam("after"); uuid.Validate(after) == nil {
		return after
	}
	return ""
}

// Cut returns the first rows of a list, up to most, and the address of the next page, which is
// "" on the last page.
func Cut[T any](c echo.Context, rows []T, most int, id func(T) string) ([]T, string) {
	if len(rows) <= most {
		return rows, ""
	}
	rows = rows[:most]
	return rows, AddressAfter(c, id(rows[most-1]))
}

// AddressAfter returns the address of the request with another cursor. "" is the
// first page.
func AddressAfter(c echo.Context, after string) string {
	q := c.QueryParams()
	q.Del("done")
	if q.Del("after"); after != "" {
		q.Set("after", after)
	}
	return AppendQuery(c.Request().URL.Path, q)
}

// NewList returns one page of a list. The caller has read up to PageRows + 1 rows; the
// additional row shows that there is a next page. newURL is "" if the visitor must not add
// rows.
func NewList[T, R any](c echo.Context, rows []T, id func(T) string, newURL string, show func(T) R) views.List[R] {
	l := views.List[R]{Notice: Notice(c), NewURL: newURL}
	rows, l.Next = Cut(c, rows, PageRows, id)
	for _, row := range rows {
		l.Rows = append(l.Rows, show(row))
	}
	return l
}
