package exceptions

import (
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// A NewGrant is the input for a new grant.
type NewGrant struct {
	Policy string // slug
	Limit  string // name; "" if the policy has only one limit
	// Key is like Grant.Key.
	Key       map[string]string
	Units     int64  // 1 to enforcement.MaxGrantUnits
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
}

func (n NewGrant) validate(f *problem.Fields, t tenantWithPlan, now time.Time) Grant {
	g := Grant{Policy: n.Policy, Limit: n.Limit, Units: n.Units, Reason: n.Reason}
	if len(n.Key) > 0 {
		g.Key = t.key(f, n.Policy, n.Key)
	} else {
		t.policy(f, n.Policy)
	}
	if i := slices.IndexFunc(t.policies, func(p plans.Policy) bool { return p.Slug == n.Policy }); i >= 0 {
		g.Limit = n.limit(f, t.policies[i])
	}
	if n.Units < 1 || n.Units > enforcement.MaxGrantUnits {
		f.Add("/units", "must be 1 to %d", int64(enforcement.MaxGrantUnits))
	}
	f.Line("/reason", n.Reason, 1, MaxReason)
	if n.ExpiresAt.IsZero() {
		f.Add("/expires_at", "must be set: a grant ends at a time")
	} else {
		g.ExpiresAt = end(f, n.ExpiresAt, now)
	}
	return g
}

// limit returns the name of the limit for which the grant n is. p is the policy of this limit.
func (n NewGrant) limit(f *problem.Fields, p plans.Policy) string {
	if p.Mode != "" && p.Mode != enforcement.PolicyEnforce {
		f.Add("/policy", "the policy denies nothing: its mode is %s", p.Mode)
	}
	name := n.Limit
	if name == "" && len(p.Limits) == 1 {
		name = p.Limits[0].Name
	}
	i := slices.IndexFunc(p.Limits, func(l enforcement.Limit) bool { return l.Name == name })
	switch {
	case len(p.Limits) == 0:
		f.Add("/policy", "the policy has no limits, so there is nothing to top up")
	case i < 0 && len(grantable(p).Limits) == 0:
		f.Add("/limit", "the policy has no limit that can have grants: only a fixed_window with a quota above 0 can")
	case name == "":
		f.Add("/limit", "must be one of %s", limitNames(grantable(p)))
	case i < 0:
		f.Add("/limit", "the policy has no limit with this name; %s can have grants", limitNames(grantable(p)))
	case p.Limits[i].Quota == 0:
		f.Add("/limit", "has the quota 0, which denies everything, also with a grant: raise the quota instead")
	case !p.Limits[i].Grantable():
		f.Add("/limit", "is a %s: only a fixed_window, also with a calendar window, can have grants", p.Limits[i].Algorithm)
	}
	return name
}

// grantable returns p with only those of its limits that can have grants.
func grantable(p plans.Policy) plans.Policy {
	p.Limits = slices.DeleteFunc(slices.Clone(p.Limits), func(l enforcement.Limit) bool { return l.Quota == 0 || !l.Grantable() })
	return p
}
