package web

import (
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web/views"
)

// PageRows is the number of rows of a list on one page.
const PageRows = 50

// After returns the parameter after of the address. It is the ID of the last row on the previous
// page of a list, or "" for the first page.
func After(c echo.Context) string {
	if after := c.QueryParam("after"); uuid.Validate(after) == nil {
		return after
	}
	return ""
}

// Cut returns the first most rows. If there are more rows, it also returns the address of the
// next page; otherwise the address is "".
func Cut[T any](c echo.Context, rows []T, most int, id func(T) string) ([]T, string) {
	if len(rows) <= most {
		return rows, ""
	}
	rows = rows[:most]
	return rows, AddressAfter(c, id(rows[most-1]))
}

// AddressAfter returns the address of another page of the same list: the page that begins after
// the row with the ID after. If after is "", it is the first page.
func AddressAfter(c echo.Context, after string) string {
	q := c.QueryParams()
	q.Del("done")
	if q.Del("after"); after != "" {
		q.Set("after", after)
	}
	return AppendQuery(c.Request().URL.Path, q)
}

// NewList returns the view of one page of a list. The caller has read up to PageRows + 1 rows; if
// it got the additional row, there is a next page. newURL is the address of the form for a new
// row, or "" if the visitor must not add one.
func NewList[T, R any](c echo.Context, rows []T, id func(T) string, newURL string, show func(T) R) views.List[R] {
	l := views.List[R]{Notice: Notice(c), NewURL: newURL}
	rows, l.Next = Cut(c, rows, PageRows, id)
	for _, row := range rows {
		l.Rows = append(l.Rows, show(row))
	}
	return l
}
