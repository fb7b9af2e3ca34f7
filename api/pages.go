package api

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// How many rows a page has.
const (
	maxPage     = 100
	defaultPage = 20
)

// A listing is one list that is paged: its path with everything that narrows
// it. A cursor belongs to one listing and is refused by every other.
type listing struct {
	path   string
	filter url.Values
	limit  int
	// after is the id of the last row of the page before, "" on the first.
	after string
}

// page begins a listing from its parameters.
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

// sum ties a place to the listing. It is no secret: a cursor that is made up can
// only name another place in what its caller may read anyway. It has the
// characters of an id or a number, as no store takes just any.
func (l listing) sum(after string) string {
	full := sha256.Sum256([]byte(l.path + "\x00" + l.filter.Encode() + "\x00" + after))
	return string(full[:sumLength])
}

func (l listing) cursor(after string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(l.sum(after) + after))
}

// fetch is how many rows to ask for: one more than the page, to know whether
// there is a next one.
func (l listing) fetch() int { return l.limit + 1 }

// cut takes the page out of the rows that were fetched; id names a row's place.
func cut[T any](l listing, rows []T, id func(T) string) (data []T, next string, link *string) {
	if len(rows) <= l.limit {
		return rows, "", nil
	}
	rows = rows[:l.limit]
	next = l.cursor(id(rows[l.limit-1]))
	query := url.Values{"limit": {strconv.Itoa(l.limit)}, "cursor": {next}}
	for name, values := range l.filter {
		query[name] = values
	}
	text := "<" + l.path + "?" + query.Encode() + `>; rel="next"`
	return rows, next, &text
}

// filters makes the part of a query that narrows a listing; empty values are
// left out.
func filters(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

// each turns rows into what the wire shows of them; never nil, which JSON would
// say as null.
func each[T, U any](rows []T, show func(T) (U, error)) ([]U, error) {
	out := make([]U, len(rows))
	for i, row := range rows {
		var err error
		if out[i], err = show(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}
