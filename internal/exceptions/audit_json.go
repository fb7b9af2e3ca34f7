package exceptions

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// The following types are the JSON forms of exceptions in the audit log. The API uses the same
// forms.

type jsonOverride struct {
	ID        string      `json:"id,omitempty"`
	Policy    string      `json:"policy"`
	Attribute string      `json:"attribute,omitempty"`
	Value     string      `json:"value,omitempty"`
	Prefix    string      `json:"prefix,omitempty"`
	Factor    json.Number `json:"factor,omitempty"`
	Limits    []jsonLimit `json:"limits,omitempty"`
	Reason    string      `json:"reason"`
	ExpiresAt time.Time   `json:"expires_at"`
	CreatedAt time.Time   `json:"created_at,omitzero"`
}

type jsonLimit struct {
	Name   string `json:"name"`
	Quota  *int64 `json:"quota,omitempty"`
	Burst  *int64 `json:"burst,omitempty"`
	Window string `json:"window,omitempty"`
}

// JSON returns the form of the override that the audit log contains. Times are in UTC.
func (o Override) JSON() (json.RawMessage, error) {
	out := jsonOverride{
		ID: o.ID, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix,
		Reason: o.Reason, ExpiresAt: o.ExpiresAt.UTC(), CreatedAt: o.CreatedAt.UTC(),
	}
	if o.Factor != 0 {
		out.Factor = json.Number(FormatFactor(o.Factor))
	}
	for _, l := range o.Limits {
		limit := jsonLimit{Name: l.Name, Quota: unlessKept(l.Quota), Burst: unlessKept(l.Burst)}
		if l.Window != 0 {
			limit.Window = enforcement.FormatWindow(l.Window)
		}
		out.Limits = append(out.Limits, limit)
	}
	return enforcement.MarshalJSON(out)
}

func unlessKept(n int64) *int64 {
	if n == enforcement.Keep {
		return nil
	}
	return &n
}

type jsonEntry struct {
	ID        string     `json:"id,omitempty"`
	List      List       `json:"list"`
	Attribute string     `json:"attribute"`
	Value     string     `json:"value"`
	Reason    string     `json:"reason"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	CreatedAt time.Time  `json:"created_at,omitzero"`
}

// JSON returns the form of the list entry that the audit log contains. Times are in UTC.
func (n Entry) JSON() (json.RawMessage, error) {
	out := jsonEntry{
		ID: n.ID, List: n.List, Attribute: n.Attribute, Value: n.Value, Reason: n.Reason, CreatedAt: n.CreatedAt.UTC(),
	}
	if !n.ExpiresAt.IsZero() {
		end := n.ExpiresAt.UTC()
		out.ExpiresAt = &end
	}
	return enforcement.MarshalJSON(out)
}

type jsonBlock struct {
	ID        string            `json:"id"`
	Policy    string            `json:"policy"`
	Key       map[string]string `json:"key"`
	Reason    string            `json:"reason"`
	ExpiresAt time.Time         `json:"expires_at"`
	CreatedAt time.Time         `json:"created_at"`
}

// JSON returns the form of the block that the audit log contains. Times are in UTC.
func (b Block) JSON() (json.RawMessage, error) {
	return enforcement.MarshalJSON(jsonBlock{
		ID: b.ID, Policy: b.Policy, Key: notNil(b.Key), Reason: b.Reason, ExpiresAt: b.ExpiresAt.UTC(), CreatedAt: b.CreatedAt.UTC(),
	})
}

type jsonGrant struct {
	ID        string            `json:"id"`
	Policy    string            `json:"policy"`
	Limit     string            `json:"limit"`
	Key       map[string]string `json:"key,omitempty"`
	Units     int64             `json:"units"`
	Reason    string            `json:"reason"`
	ExpiresAt time.Time         `json:"expires_at"`
	CreatedAt time.Time         `json:"created_at"`
}

// JSON returns the form of the grant that the audit log contains. Times are in UTC.
func (g Grant) JSON() (json.RawMessage, error) {
	return enforcement.MarshalJSON(jsonGrant{
		ID: g.ID, Policy: g.Policy, Limit: g.Limit, Key: g.Key, Units: g.Units, Reason: g.Reason,
		ExpiresAt: g.ExpiresAt.UTC(), CreatedAt: g.CreatedAt.UTC(),
	})
}

type jsonReset struct {
	Policy string            `json:"policy"`
	Key    map[string]string `json:"key"`
	Lease  string            `json:"lease,omitempty"`
	Reason string            `json:"reason,omitempty"`
}

// JSON returns the form of the reset that the audit log contains.
func (r Reset) JSON() (json.RawMessage, error) {
	return enforcement.MarshalJSON(jsonReset{Policy: r.Policy, Key: notNil(r.Key), Lease: r.Lease, Reason: r.Reason})
}

type jsonReservationNote struct {
	Reservation string            `json:"reservation"`
	Cost        *int64            `json:"cost,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	TTLMS       int64             `json:"ttl_ms,omitempty"`
	Reason      string            `json:"reason,omitempty"`
}

// JSON returns the form of the change that the audit log contains.
func (n ReservationNote) JSON() (json.RawMessage, error) {
	return enforcement.MarshalJSON(jsonReservationNote{n.Reservation, n.Cost, n.Attributes, n.TTL.Milliseconds(), n.Reason})
}

// notNil returns key, or an empty map if key is nil, so that the JSON form is {} and not null.
// key is nil for a block of a policy without count_by.
func notNil(key map[string]string) map[string]string {
	if key == nil {
		return map[string]string{}
	}
	return key
}
