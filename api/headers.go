package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// Headers is a set of formats of rate-limit headers, as bits.
type Headers uint8

// The formats. The setting HEADGATE_HEADERS and the dashboard name them draft-11, draft-06,
// x-ratelimit and near-limit.
const (
	// Draft11 stands for RateLimit-Policy and RateLimit of revision 11 of the IETF draft.
	Draft11 Headers = 1 << iota
	// Draft06 stands for RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of revision 6 of
	// the draft.
	Draft06
	// XRateLimit stands for X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. The
	// last one is a number of seconds from now.
	XRateLimit
	// NearLimit stands for X-RateLimit-Near-Limit. It lists the limits in force whose use has reached one of
	// their warn_at thresholds.
	NearLimit
)

// DelayHeader is the name of the header that holds Decision.Delay, in milliseconds, for gateways
// that do not read the body. An allowed decision with a delay above 0 has this header, even if no
// format is selected.
const DelayHeader = "X-RateLimit-Delay-Ms"

// ServeHeader is the name of the header that an allowed decision has if Decision.ServeCheap is set,
// even if no format is selected. Its value is ServeCheap.
const ServeHeader = "X-RateLimit-Serve"

// ServeCheap is the value of ServeHeader, and of the member serve of a decision, if the caller should serve
// a cheap response.
const ServeCheap = "cheap"

// ParseHeaders parses the setting HEADGATE_HEADERS: off, or a list of formats with commas. ""
// stands for draft-11.
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
		case "near-limit":
			set |= NearLimit
		default:
			return 0, fmt.Errorf("%q is not one of draft-11, draft-06, x-ratelimit and near-limit, several by comma, or off",
				strings.TrimSpace(word))
		}
	}
	return set, nil
}

// AppendPolicies appends the value of the header RateLimit-Policy to b: a list of RFC 9651 with the
// enforced limits that applied to the check. If none applied, it appends nothing.
func AppendPolicies(b []byte, limits []enforcement.LimitState) []byte {
	from := len(b)
	for i := range limits {
		l := &limits[i]
		if !l.Rule.Mode.Denies() {
			continue
		}
		b = appendName(b, len(b) > from, l)
		b = append(b, ";q="...)
		b = strconv.AppendInt(b, l.Quota(), 10)
		if l.Limit.Algorithm == enforcement.Concurrency {
			b = append(b, `;qu="concurrent-requests"`...)
		} else if ms := l.WindowMS(); ms%1000 == 0 {
			b = append(b, ";w="...)
			b = strconv.AppendInt(b, ms/1000, 10)
		}
	}
	return b
}

// AppendStates appends the value of the header RateLimit to b: for each enforced limit, the
// remaining units and the result of changesAfter in seconds. For a limit that can never allow the
// request, it leaves out the time.
func AppendStates(b []byte, limits []enforcement.LimitState) []byte {
	from := len(b)
	for i := range limits {
		l := &limits[i]
		if !l.Rule.Mode.Denies() {
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

// appendNearLimits appends the value of the header X-RateLimit-Near-Limit to b: a list of RFC 9651 with each limit in
// force that has reached a warn_at threshold, and its highest reached threshold in percent.
func appendNearLimits(b []byte, limits []enforcement.LimitState) []byte {
	from := len(b)
	for i := range limits {
		l := &limits[i]
		if percentage := l.NearLimit(); percentage != 0 && l.Rule.Mode.InForce() {
			b = append(appendName(b, len(b) > from, l), ";percent="...)
			b = strconv.AppendInt(b, int64(percentage), 10)
		}
	}
	return b
}

// appendName appends the name of a limit, as the headers show it, as a string of RFC 9651. Slugs
// and names of limits have no characters that need escapes.
func appendName(b []byte, comma bool, l *enforcement.LimitState) []byte {
	if comma {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, l.Limit.HeaderName...)
	return append(b, '"')
}

// changesAfter returns the number of milliseconds after which the state of a limit changes. For a
// limit that denies the request, this is the time until it allows the request. For any other limit,
// it is the time until the limit resets.
func changesAfter(l *enforcement.LimitState) int64 {
	if l.Allowed {
		return l.ResetAfter
	}
	return l.RetryAfter
}

// seconds converts milliseconds to seconds and rounds up.
func seconds(ms int64) int64 { return (ms + 999) / 1000 }

// Tightest returns the one limit that the formats Draft06 and XRateLimit and the Redis protocol
// report. If limits deny the request, it is the denying limit with the longest wait. Otherwise it
// is the enforced limit with the fewest remaining units.
func Tightest(d *enforcement.Decision) *enforcement.LimitState {
	if l := d.DenyingLimit(); l != nil {
		return l
	}
	var least *enforcement.LimitState
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Rule.Mode.Denies() && (least == nil || l.Remaining < least.Remaining) {
			least = l
		}
	}
	return least
}

// retryAfterSeconds returns the value of the header Retry-After, or 0 if the response has no such
// header.
func retryAfterSeconds(d *enforcement.Decision) int64 {
	if d.Allowed || d.RetryAfter == enforcement.Never {
		return 0
	}
	return max(1, seconds(d.RetryAfter))
}

// write sets the headers for a decision. If id is true, it sets X-Request-Id to the ID of the
// decision. Header names keep the spelling of their specification. b already holds the body. To
// allocate less, write appends all header values to b, converts them to one string, and sets each
// header to a part of this string.
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
	if d.Delay > 0 {
		b = strconv.AppendInt(b, d.Delay, 10)
	}
	delay := len(b)
	policies := delay
	if h&Draft11 != 0 {
		b = AppendPolicies(b, d.Limits)
		policies = len(b)
		b = AppendStates(b, d.Limits)
	}
	states := len(b)
	if h&NearLimit != 0 {
		b = appendNearLimits(b, d.Limits)
	}
	text, values := string(b[body:]), make([]string, 0, 8)
	set := func(name string, from, end int) {
		if from < end {
			values = append(values, text[from-body:end-body])
			to[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	set(requestIDHeader, body, request)
	set("Content-Length", request, length)
	set("Retry-After", length, retry)
	set(DelayHeader, retry, delay)
	if d.ServeCheap {
		values = append(values, ServeCheap)
		to[ServeHeader] = values[len(values)-1 : len(values) : len(values)]
	}
	set("RateLimit-Policy", delay, policies)
	set("RateLimit", policies, states)
	set("X-RateLimit-Near-Limit", states, len(b))
	if h&(Draft06|XRateLimit) != 0 {
		h.writeOne(to, Tightest(d))
	}
	return b
}

// writeOne sets the headers of the formats that report only one limit.
func (h Headers) writeOne(to http.Header, l *enforcement.LimitState) {
	if l == nil {
		return
	}
	reset := changesAfter(l)
	if reset == enforcement.Never {
		reset = l.ResetAfter
	}
	set := func(prefix string) {
		to[prefix+"Limit"] = []string{strconv.FormatInt(l.Quota(), 10)}
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
