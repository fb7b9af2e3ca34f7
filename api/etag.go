package api

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// etag is the entity tag of a revision.
func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// matches reports whether a list of entity tags names tag, or is *. Weak tags
// match only when weak comparison is asked for (RFC 9110 section 13.1).
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

// ifMatch holds the If-Match of a write against the revision in force.
func ifMatch(header string, revision int64) error {
	if !matches([]string{header}, etag(revision), false) {
		return problem.New(problem.Stale, "it was changed since it was read: the ETag is now %s", etag(revision))
	}
	return nil
}
