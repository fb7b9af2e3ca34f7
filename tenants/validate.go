package tenants

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// Bounds of the fields of a tenant or a key.
const (
	MaxName   = 200 // characters
	maxScopes = 4

	MinKeys, MostKeys = 1000, 1_000_000_000 // bounds of Document.MaxKeys

	MaxSample = 1_000_000 // the maximum of Document.SampleAllowed

	MinCustomerKey, MaxCustomerKey = 16, 4096 // lengths of NewKey.Token, in bytes

	MaxCost = 1<<31 - 1 // the maximum of Bounds.MaxCost, and the maximum cost of a check
)

// Normalise returns the document with the defaults in place of empty fields.
func Normalise(d Document) Document {
	d.Status = cmp.Or(d.Status, Active)
	d.TimeZone = cmp.Or(d.TimeZone, "UTC")
	d.BillingAnchorDay = cmp.Or(d.BillingAnchorDay, 1)
	d.NoPolicy = cmp.Or(d.NoPolicy, Allow)
	return d
}

// Validate returns a problem.Invalid with JSON pointers to all faults of a normalized document,
// or nil. It does not check whether the plan exists; the Store does.
func Validate(d Document) error {
	var f problem.Fields
	faults(&f, d)
	return f.Err()
}

func faults(f *problem.Fields, d Document) {
	f.Line("/name", d.Name, 1, MaxName)
	if d.Status != Active && d.Status != Suspended {
		f.Add("/status", "must be active or suspended")
	}
	if d.Plan != "" {
		f.Slug("/plan", d.Plan)
	}
	f.TimeZone("/time_zone", d.TimeZone)
	if d.BillingAnchorDay < 1 || d.BillingAnchorDay > 31 {
		f.Add("/billing_anchor_day", "must be 1 to 31")
	}
	if d.NoPolicy != Allow && d.NoPolicy != Deny {
		f.Add("/no_policy", "must be allow or deny")
	}
	if d.MaxKeys != 0 && (d.MaxKeys < MinKeys || d.MaxKeys > MostKeys) {
		f.Add("/max_keys", "must be %d to %d, or 0 for the setting of the nodes", MinKeys, MostKeys)
	}
	if d.SampleAllowed > MaxSample {
		f.Add("/sample_allowed", "must be 0 to %d", MaxSample)
	}
}

// NewKey holds those fields of a new key that an administrator sets.
type NewKey struct {
	Name      string // 1 to 200 characters
	Scopes    []Scope
	ExpiresAt time.Time // zero if the key does not expire
	// AllowedIPs are the IP addresses and CIDR ranges from which the key may be used, at most
	// MaxAllowedIPs. If it is empty, the key may be used from all addresses.
	AllowedIPs []string
	// Token is the token of a key that a customer already has. If it is set, no new token is
	// created, and the key can only have the scope identify.
	Token string
	Bounds
}

// Validate returns a problem.Invalid with JSON pointers to all faults of the fields, or nil.
func (k NewKey) Validate(now time.Time) error {
	var f problem.Fields
	f.Line("/name", k.Name, 1, MaxName)
	k.validateScopes(&f)
	if identifies := slices.Contains(k.Scopes, ScopeIdentify); identifies && len(k.Scopes) > 1 {
		f.Add("/scopes", "identify must be the only scope, because a customer sends the key")
	} else if !identifies && k.Token != "" {
		f.Add("/token", "is possible only with the scope identify: Headgate makes other tokens")
	}
	if k.Token != "" && (len(k.Token) < MinCustomerKey || len(k.Token) > MaxCustomerKey || !visible(k.Token)) {
		f.Add("/token", "must be %d to %d visible ASCII characters", MinCustomerKey, MaxCustomerKey)
	}
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) {
		f.Add("/expires_at", "must be in the future")
	}
	if k.ExpiresAt.UTC().Year() > 9999 {
		f.Add("/expires_at", "must be before the year 10000")
	}
	if _, err := ParseNetworks(k.AllowedIPs); err != nil {
		if p := (*problem.Problem)(nil); errors.As(err, &p) {
			f.AddAll("/allowed_ips", p.Fields)
		}
	}
	if k.MaxCost < 0 || k.MaxCost > MaxCost {
		f.Add("/max_cost", "must be 1 to %d", MaxCost)
	}
	return f.Err()
}

// validateScopes adds a fault to f for each scope that is invalid on its own.
func (k NewKey) validateScopes(f *problem.Fields) {
	switch {
	case len(k.Scopes) == 0:
		f.Add("/scopes", "needs a scope: check, read or manage, or identify for the key of a customer")
		return
	case len(k.Scopes) > maxScopes:
		f.Add("/scopes", "has more entries than there are scopes")
		return
	}
	for i, s := range k.Scopes {
		pointer := "/scopes/" + strconv.Itoa(i)
		switch {
		case s != ScopeCheck && s != ScopeRead && s != ScopeManage && s != ScopeIdentify:
			f.Add(pointer, "must be check, read, manage or identify")
		case slices.Contains(k.Scopes[:i], s):
			f.Add(pointer, "is named twice")
		}
	}
}

// visible reports whether text has only visible ASCII characters; a space is not visible.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] < '!' || text[i] > '~' {
			return false
		}
	}
	return true
}

// MaxOverlap is the longest time for which an old key stays valid after its rotation.
const MaxOverlap = 7 * 24 * time.Hour

// validateOverlap returns an error if overlap is not between 0 and MaxOverlap.
func validateOverlap(overlap time.Duration) error {
	if overlap < 0 || overlap > MaxOverlap {
		return problem.At("/overlap_ms", "must be 0 to %d (7 days)", MaxOverlap.Milliseconds())
	}
	return nil
}
