package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// The default and the maximum number of rows on one page.
const (
	maxPage     = 100
	defaultPage = 20
)

// A listing is a list of objects that the API returns page by page. It is identified by its path
// and its filter. A cursor is valid only for the listing in which it was created.
type listing struct {
	path   string
	filter url.Values
	limit  int
	// after is the position of the last row of the previous page. For the first page, it is "".
	after string
}

// page returns the listing that a request asks for, positioned at the cursor. If the cursor was
// created for another listing, page returns an error.
func page(path string, filter url.Values, limit int, cursor string) (listing, error) {
	l := listing{path: path, filter: filter, limit: limit}
	if limit == 0 {
		l.limit = defaultPage
	}
	if cursor == "" {
		return l, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) <= sumLength || len(raw) > 256 {
		return listing{}, errCursor
	}
	after := string(raw[sumLength:])
	if string(raw[:sumLength]) != l.sum(after) || strings.Trim(after, "0123456789abcdef-") != "" {
		return listing{}, errCursor
	}
	l.after = after
	return l, nil
}

var errCursor = &problem.Problem{
	Kind: problem.Malformed, Message: "a query parameter cannot be read",
	Fields: []problem.Field{{Pointer: "cursor", Message: "is not a next_cursor of this listing"}},
}

const sumLength = 9

// sum returns a checksum of the listing and a position. A cursor contains this checksum, so that
// page can reject a cursor of another listing. The checksum need not be secret: with a forged
// cursor, a caller can only select rows that it may read anyway.
func (l listing) sum(after string) string {
	full := sha256.Sum256([]byte(l.path + "\x00" + l.filter.Encode() + "\x00" + after))
	return string(full[:sumLength])
}

func (l listing) cursor(after string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(l.sum(after) + after))
}

// A paged is the common JSON form of all pages of the API.
type paged[U any] struct {
	Data       []U
	HasMore    bool
	NextCursor string
}

// list returns the page that the parameters limit and cursor select, and its Link header. fetch
// returns at most limit rows after a position. place returns the position of a row, which list
// writes into the cursor for the next page. show converts a row to its JSON form.
func list[T, U any](
	path string, filter url.Values, limit int, cursor string,
	fetch func(after string, limit int) ([]T, error), place func(T) string, show func(T) (U, error),
) (p paged[U], link *string, err error) {
	l, err := page(path, filter, limit, cursor)
	if err != nil {
		return p, nil, err
	}
	rows, err := fetch(l.after, l.limit+1) // the extra row shows whether a next page exists
	if err != nil {
		return p, nil, err
	}
	if len(rows) > l.limit {
		rows = rows[:l.limit]
		p.HasMore, p.NextCursor = true, l.cursor(place(rows[l.limit-1]))
		query := url.Values{"limit": {strconv.Itoa(l.limit)}, "cursor": {p.NextCursor}}
		for name, values := range l.filter {
			query[name] = values
		}
		text := "<" + l.path + "?" + query.Encode() + `>; rel="next"`
		link = &text
	}
	p.Data = make([]U, len(rows)) // not nil, so that the JSON of an empty page is [] and not null
	for i, row := range rows {
		if p.Data[i], err = show(row); err != nil {
			return p, nil, err
		}
	}
	return p, link, nil
}

// shown returns a function that receives the results of a read. If the error of the read is not
// nil, the function returns it. Otherwise it returns the result of the read, converted with show.
func shown[T, U any](show func(T) (U, error)) func(T, error) (U, error) {
	return func(v T, err error) (U, error) {
		if err != nil {
			var none U
			return none, err
		}
		return show(v)
	}
}

// written returns a function that receives the results of a write. If the error of the write is not
// nil, the function returns it. Otherwise it loads the change into this node's snapshot, and
// returns the result of the write, converted with show.
func written[T, U any](ctx context.Context, a *API, show func(T) (U, error)) func(T, error) (U, error) {
	return shown(func(v T) (U, error) {
		a.cfg.Changed(ctx)
		return show(v)
	})
}

// changed loads the change of a write into this node's snapshot, unless err, the error of the
// write, is not nil. It is for writes that return no object.
func (a *API) changed(ctx context.Context, err error) error {
	if err == nil {
		a.cfg.Changed(ctx)
	}
	return err
}

// filters returns the query parameters that filter a listing. pairs holds the names and the values
// of the parameters, in turn. filters leaves out empty values.
func filters(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}
