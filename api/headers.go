package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// Headers is a set of header dialects that report the state of limits.
type Headers uint8

// The dialects.
const (
	// Draft11 is RateLimit-Policy and RateLimit of the IETF draft, revision 11.
	Draft11 Headers = 1 << iota
	// Draft06 is RateLimit-Limit, -Remaining and -Reset of revision 6.
	Draft06
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, the last in delta seconds.
	XRateLimit
)

// ParseHeaders parses HEADGATE_HEADERS: off, or a list of draft-11, draft-06 and
// x-ratelimit, separated by commas. "" means draft-11.
func ParseHeaders(text string) (Headers, error) {
	switch strings.TrimSpace(text) {
	case "":
		return Draft11, nil
	case "off":
		return 0, nil
	}
	var set Headers
	for word := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(word) {
		case "draft-11":
			set |= Draft11
		case "draft-06":
			set |= Draft06
		case "x-ratelimit":
			set |= XRateLimit
		default:
			return 0, fmt.Errorf("%q is not one of draft-11, draft-06 and x-ratelimit, several by comma, or off", strings.TrimSpace(word))
		}
	}
	return set, nil
}

// AppendPolicies appends the value of RateLimit-Policy: a list of RFC 9651 with the
// enforced limits that applied. It appends nothing if there are none.
func AppendPolicies(b []byte, limits []enforcement.LimitState) []byte {
	from := len(b)
	for i := range limits {
		l := &limits[i]
		if l.Rule.Mode != enforcement.PolicyEnforce {
			continue
		}
		b = appendName(b, len(b) > from, l)
		b = append(b, ";q="...)
		b = strconv.AppendInt(b, l.Limit.Quota, 10)
		if ms := l.Limit.Window.Milliseconds(); ms%1000 == 0 {
			b = append(b, ";w="...)
			b = strconv.AppendInt(b, ms/1000, 10)
		}
	}
	return b
}

// AppendStates appends the value of RateLimit: for each enforced limit the remaining
// units, and the seconds until a denying limit allows the request or another limit
// resets. A limit that never allows the request has no time.
func AppendStates(b []byte, limits []enforcement.LimitState) []byte {
	from := len(b)
	for i := range limits {
		l := &limits[i]
		if l.Rule.Mode != enforcement.PolicyEnforce {
			continue
		}
		b = appendName(b, len(b) > from, l)
		b = append(b, ";r="...)
		b = strconv.AppendInt(b, l.Remaining, 10)
		if after := changesAfter(l); after != enforcement.Never {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, seconds(after), 10)
		}
	}
	return b
}

// appendName appends a limit's name as a string of RFC 9651. Slugs and limit names
// need no escapes.
func appendName(b []byte, comma bool, l *enforcement.LimitState) []byte {
	if comma {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, l.Limit.HeaderName...)
	return append(b, '"')
}

// changesAfter returns the RetryAfter of a denying limit, or the ResetAfter of
// another one, in milliseconds.
func changesAfter(l *enforcement.LimitState) int64 {
	if l.Allowed {
		return l.ResetAfter
	}
	return l.RetryAfter
}

// seconds returns milliseconds as seconds, rounded up.
func seconds(ms int64) int64 { return (ms + 999) / 1000 }

// tightest returns the limit for dialects that report only one: the denying limit
// with the longest wait, or the enforced limit with the fewest units left.
func tightest(d *enforcement.Decision) *enforcement.LimitState {
	if l := d.DenyingLimit(); l != nil {
		return l
	}
	var least *enforcement.LimitState
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Rule.Mode == enforcement.PolicyEnforce && (least == nil || l.Remaining < least.Remaining) {
			least = l
		}
	}
	return least
}

// retryAfterSeconds returns the value of Retry-After, or 0 if there is none.
func retryAfterSeconds(d *enforcement.Decision) int64 {
	if d.Allowed || d.RetryAfter == enforcement.Never {
		return 0
	}
	return max(1, seconds(d.RetryAfter))
}

// write sets the headers of a decision whose body is b. With id, the decision's ID
// becomes the ID of the request. Names keep their spelling on the wire. write builds
// all values behind the body in b and copies them once, so that they share one
// string and one slice.
func (h Headers) write(to http.Header, d *enforcement.Decision, b []byte, id bool) []byte {
	body := len(b)
	if id {
		b = appendUUID(b, d.ID)
	}
	request := len(b)
	b = strconv.AppendInt(b, int64(body), 10)
	length := len(b)
	if after := retryAfterSeconds(d); after > 0 {
		b = strconv.AppendInt(b, after, 10)
	}
	retry := len(b)
	policies := retry
	if h&Draft11 != 0 {
		b = AppendPolicies(b, d.Limits)
		policies = len(b)
		b = AppendStates(b, d.Limits)
	}
	text, values := string(b[body:]), make([]string, 0, 5)
	set := func(name string, from, end int) {
		if from < end {
			values = append(values, text[from-body:end-body])
			to[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	set(requestIDHeader, body, request)
	set("Content-Length", request, length)
	set("Retry-After", length, retry)
	set("RateLimit-Policy", retry, policies)
	set("RateLimit", policies, len(b))
	if h&(Draft06|XRateLimit) != 0 {
		h.writeOne(to, tightest(d))
	}
	return b
}

// writeOne sets the headers of the dialects that report one limit.
func (h Headers) writeOne(to http.Header, l *enforcement.LimitState) {
	if l == nil {
		return
	}
	reset := changesAfter(l)
	if reset == enforcement.Never {
		reset = l.ResetAfter
	}
	set := func(prefix string) {
		to[prefix+"Limit"] = []string{strconv.FormatInt(l.Limit.Quota, 10)}
		to[prefix+"Remaining"] = []string{strconv.FormatInt(l.Remaining, 10)}
		to[prefix+"Reset"] = []string{strconv.FormatInt(seconds(reset), 10)}
	}
	if h&Draft06 != 0 {
		set("RateLimit-")
	}
	if h&XRateLimit != 0 {
		set("X-RateLimit-")
	}
}
