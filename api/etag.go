package api

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// etag returns the entity tag of an object with this revision: the revision in quotes.
func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// matches reports whether a header with a list of entity tags contains tag or is *. If weak is
// true, weak tags (W/"…") match too, as If-None-Match requires. See RFC 9110, section 13.1.
func matches(headers []string, tag string, weak bool) bool {
	for _, h := range headers {
		for part := range strings.SplitSeq(h, ",") {
			part = strings.TrimSpace(part)
			if weak {
				part = strings.TrimPrefix(part, "W/")
			}
			if part == "*" || part == tag {
				return true
			}
		}
	}
	return false
}

// ifMatch returns an error if the header If-Match of a write does not contain the revision of the
// object.
func ifMatch(header string, revision int64) error {
	if !matches([]string{header}, etag(revision), false) {
		return problem.New(problem.Stale, "the object changed after you read it: its ETag is now %s", etag(revision))
	}
	return nil
}
