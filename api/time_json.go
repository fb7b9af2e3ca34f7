package api

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// An Instant is a time in the body of a request or response. A response has the time in UTC with
// milliseconds, the precision of the store: 2026-11-24T09:32:11.509Z. A request may contain any RFC
// 3339 time.
type Instant struct{ time.Time }

// MarshalJSON writes the time in UTC with milliseconds.
func (i Instant) MarshalJSON() ([]byte, error) {
	return i.UTC().AppendFormat(nil, `"`+enforcement.InstantLayout+`"`), nil
}
