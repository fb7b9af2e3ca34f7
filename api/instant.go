package api

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// An Instant is a time in the body of an answer or a request. Answers have it in UTC with milliseconds, which is the
// precision of the store: 2026-11-24T09:32:11.509Z. Requests may have any form of RFC 3339.
type Instant struct{ time.Time }

// MarshalJSON writes the time in UTC with milliseconds.
func (i Instant) MarshalJSON() ([]byte, error) {
	return i.UTC().AppendFormat(nil, `"`+enforcement.InstantLayout+`"`), nil
}
