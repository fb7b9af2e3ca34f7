package api

import (
	"context"
	"maps"
	"math"
	"time"

	"github.com/headgate/headgate/internal/usage"
)

// GetUsage is GET /v1/tenants/{tenant}/usage.
func (a *API) GetUsage(ctx context.Context, r GetUsageRequestObject) (GetUsageResponseObject, error) {
	s := a.cfg.Usage
	var u usage.Usage
	var err error
	switch p := r.Params; {
	case p.Key != nil && p.Policy == "":
		return nil, malformedAt("key", "needs policy")
	case p.Key != nil:
		// An empty value means that the check does not have the attribute.
		maps.DeleteFunc(p.Key, func(_, value string) bool { return value == "" })
		u, err = s.Key(ctx, r.Tenant, p.Policy, p.Key)
	case p.Policy != "":
		u, err = s.Policy(ctx, r.Tenant, p.Policy)
	default:
		u, err = s.Tenant(ctx, r.Tenant)
	}
	if err != nil {
		return nil, asParameterFault(err)
	}
	return showUsage(&u)
}

func showUsage(u *usage.Usage) (GetUsage200JSONResponse, error) {
	out := GetUsage200JSONResponse{
		Tenant: u.Tenant, Plan: u.Plan, PlanVersion: u.PlanVersion, At: Instant{u.At}, Policies: make([]PolicyUsage, len(u.Policies)),
	}
	if c := u.Counters; c != nil {
		out.Counters = &UsageCounters{Live: c.Live, Max: c.Max, Full: c.Full}
	}
	for i := range u.Policies {
		p := &u.Policies[i]
		shown := PolicyUsage{
			Policy: p.Policy, Mode: PolicyUsageMode(p.Mode), CountBy: p.CountBy, Pace: showPace(p.Pace),
			Keys: make([]KeyUsage, len(p.Keys)), More: p.More,
		}
		if shown.CountBy == nil {
			shown.CountBy = []string{}
		}
		for k := range p.Keys {
			var err error
			if shown.Keys[k], err = showKeyUsage(&p.Keys[k]); err != nil {
				return out, err
			}
		}
		out.Policies[i] = shown
	}
	return out, nil
}

func showKeyUsage(k *usage.KeyUsage) (out KeyUsage, err error) {
	out = KeyUsage{Key: k.Attributes(), Redacted: k.Redacted, Pace: showPace(k.Pace), Limits: make([]LimitUsage, len(k.Limits))}
	if out.Override, err = showInForce(k.Override); err != nil {
		return out, err
	}
	if out.Block, err = showInForce(k.Block); err != nil {
		return out, err
	}
	for i := range k.Limits {
		l := &k.Limits[i]
		out.Limits[i] = LimitUsage{
			Limit: l.Limit.Name, Algorithm: Algorithm(l.Limit.Algorithm.String()), Quota: l.Limit.Quota + l.RolledOver, RolledOver: l.RolledOver,
			WindowMs: l.Window.Milliseconds(),
			Used:     l.Used, Remaining: l.Remaining, ResetAfterMs: roundedUp(l.ResetAfter),
		}
		if l.Limit.Algorithm.Bucket() {
			out.Limits[i].Burst = &l.Capacity
		}
		for _, g := range l.Grants {
			id, err := parseUUID(g.ID)
			if err != nil {
				return out, err
			}
			out.Limits[i].Grants = append(out.Limits[i].Grants, GrantNow{Id: id, Units: g.Units, Left: g.Left, ExpiresAt: Instant{g.Until}})
		}
		if l.ExhaustedAfter != nil {
			after := roundedUp(*l.ExhaustedAfter)
			out.Limits[i].ExhaustedAfterMs = &after
		}
	}
	return out, nil
}

func showInForce(f *usage.InForce) (*UsageInForce, error) {
	if f == nil {
		return nil, nil
	}
	id, err := parseUUID(f.ID)
	return &UsageInForce{Id: id, Reason: f.Reason, ExpiresAt: Instant{f.Until}}, err
}

func showPace(p usage.Pace) *UsagePace {
	if !p.Known {
		return nil
	}
	return &UsagePace{
		PerMinute: thousandths(p.PerMinute), RefusedPerMinute: thousandths(p.RefusedPerMinute),
		RequestsPerMinute: thousandths(p.Requests), Error: thousandths(p.Error), OverMs: p.Over.Milliseconds(),
	}
}

func thousandths(x float64) float64 { return math.Round(x*1000) / 1000 }

// roundedUp converts a duration to milliseconds and rounds up.
func roundedUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
