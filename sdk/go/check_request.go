package headgate

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// Mode is the mode of a check.
type Mode string

const (
	Enforce Mode = "enforce" // decide and charge
	Peek    Mode = "peek"    // decide and charge nothing
	Force   Mode = "force"   // charge even if nothing is left
	// TakeUpTo charges as much of the cost as is left; see Decision.Taken.
	TakeUpTo Mode = "take_up_to"
)

// A CheckRequest is one request to decide.
type CheckRequest struct {
	// Tenant is the ID or slug of a tenant. An operator key must name it; a tenant key
	// may leave it out.
	Tenant string
	// Method is the method of the request, such as GET.
	Method string
	// Path is the path of the request without its query. It begins with /.
	Path string
	// Attributes are the values that policies count by, such as ip and user.
	Attributes map[string]string
	// Cost is the number of quota units. If it is nil, the cost is 1. A cost of 0 charges nothing.
	Cost *int64
	// Mode is the mode of the check. Default: Enforce.
	Mode Mode
	// Refundable keeps what the check charges, so that Client.RefundCheck of package manage can
	// give it back. Not with Peek, and not in an atomic batch. Default: false.
	Refundable bool
	// IdempotencyKey makes the check idempotent: 1 to 255 visible ASCII characters, such as
	// the ID of the request that you serve. A repetition within 10 minutes gets the first
	// decision again and charges nothing. The client therefore also retries if the
	// connection breaks before the answer. In a batch, only the key of the first request
	// counts; it is that of the whole batch. Default: none.
	IdempotencyKey string
	// Lease is the lease that holds places of concurrency limits. Default: one with the ID of the
	// decision, for the window of each limit. Decision.Lease has it.
	Lease Lease
}

// A Lease holds places of concurrency limits until it is released or ends. A check with the ID of
// a lease that has not ended renews it. manage.Client.ReleaseLease releases it.
type Lease struct {
	// ID is an ID of your own, such as that of the job: 1 to 128 bytes of printable text.
	ID string `json:"id"`
	// TTLMS is the time to live in milliseconds, from the check on.
	TTLMS int64 `json:"ttl_ms"`
}

// Cost returns a pointer to units, for CheckRequest.Cost.
func Cost(units int64) *int64 { return &units }

// append appends the JSON form of the request. Equal requests have equal JSON forms, because
// the names of attributes are sorted. The JSON form is the key of a remembered denial.
func (r *CheckRequest) append(b []byte) []byte {
	b = append(b, '{')
	b = appendMember(b, "tenant", r.Tenant)
	b = appendMember(b, "method", r.Method)
	b = appendMember(b, "path", r.Path)
	if len(r.Attributes) > 0 {
		var few [8]string
		names := few[:0]
		for name := range r.Attributes {
			names = append(names, name)
		}
		slices.Sort(names)
		b = append(comma(b), `"attributes":{`...)
		for _, name := range names {
			b = append(appendString(comma(b), name), ':')
			b = appendString(b, r.Attributes[name])
		}
		b = append(b, '}')
	}
	if r.Cost != nil {
		b = append(comma(b), `"cost":`...)
		b = strconv.AppendInt(b, *r.Cost, 10)
	}
	b = appendMember(b, "mode", string(r.Mode))
	if r.Refundable {
		b = append(comma(b), `"refundable":true`...)
	}
	if r.Lease != (Lease{}) {
		b = appendMember(append(comma(b), `"lease":{`...), "id", r.Lease.ID)
		if r.Lease.TTLMS != 0 {
			b = strconv.AppendInt(append(comma(b), `"ttl_ms":`...), r.Lease.TTLMS, 10)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

func comma(b []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return b
}

// appendMember appends a member of a JSON object. It appends nothing if the value is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(comma(b), '"')
	b = append(b, name...)
	return appendString(append(b, '"', ':'), value)
}

// appendString appends s as a JSON string. It replaces invalid UTF-8 with U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			b = append(b, c)
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
		}
	}
	return append(b, '"')
}
