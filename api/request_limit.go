package api

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// RequestLimits limits the number of requests that are not checks, such as requests for management
// and analytics. Each node counts its own requests. Checks are limited by the plans of the tenants,
// not by RequestLimits.
type RequestLimits struct {
	// Limiter has the counters. Default: no limits.
	Limiter enforcement.Limiter
	// PerKey and PerAddress are the numbers of requests per minute that are allowed for one API
	// key, and from one address. All IPv6 addresses of a /64 network count as one. 0 means no
	// limit.
	PerKey, PerAddress int64
	// Denied is incremented for each denied request. Default: denied requests are not counted.
	Denied *atomic.Int64
}

// failuresShare sets the limit for requests without a valid key: PerAddress divided by
// failuresShare, per minute and address.
const failuresShare = 20

// A requestLimit decides requests to the API with its own Engine, of the type that decides checks.
type requestLimit struct {
	engine  *enforcement.Engine
	subject *enforcement.Subject
	denied  *atomic.Int64
}

// Attributes by which the request limits count or match.
const (
	byAPIKey  = "key"
	byFailure = "failed" // set if the request has no key, or a key that is not valid for its address
)

// newRequestLimit returns a requestLimit, or nil if no limit is set.
func newRequestLimit(limits RequestLimits) *requestLimit {
	var rules []enforcement.RuleSpec
	add := func(name, by string, quota int64, match map[string]string) {
		if quota == 0 {
			return
		}
		l := enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: quota, Window: time.Minute}
		rules = append(rules, enforcement.RuleSpec{
			Policy: name, Attributes: match, CountBy: []string{by}, Missing: enforcement.MissingSkip,
			Limits: []enforcement.RuleLimit{{Limit: l, Cell: uint32(len(rules) + 1), Meter: l.Compile(1)}},
		})
	}
	add("api-key", byAPIKey, limits.PerKey, nil)
	add("api-address", enforcement.IPNetwork, limits.PerAddress, nil)
	add("api-failures", enforcement.IPNetwork, (limits.PerAddress+failuresShare-1)/failuresShare, map[string]string{byFailure: "yes"})
	if limits.Limiter == nil || len(rules) == 0 {
		return nil
	}
	plan, err := enforcement.CompilePlan("api", 1, rules)
	if err != nil {
		panic(err) // cannot fail: only the quotas vary, and settings are validated
	}
	denied := limits.Denied
	if denied == nil {
		denied = new(atomic.Int64)
	}
	return &requestLimit{
		engine:  enforcement.NewEngine(limits.Limiter, enforcement.Config{}),
		subject: &enforcement.Subject{Tenant: "api", Home: "api", PlanRevision: 1, Plan: plan},
		denied:  denied,
	}
}

// errTooManyRequests is the error for a request that exceeds a limit. limitRequest sets its
// headers.
var errTooManyRequests = problem.New(problem.TooMany,
	"too many requests to this API with this key or from this address: wait for Retry-After")

// limitRequest charges a request and sets the rate-limit headers of its response. cause is the
// error of the authentication, or nil. If a limit denies the request, limitRequest returns
// errTooManyRequests. Otherwise it returns cause.
func (a *API) limitRequest(w http.ResponseWriter, r *http.Request, who caller, cause error) error {
	limit := a.requests
	if limit == nil || problem.Is(cause, problem.Unavailable) {
		return cause
	}
	s := scratches.Get().(*scratch)
	defer s.release()
	s.check = enforcement.Check{Cost: 1, Attributes: s.attributes[:0]}
	if _, canonical, err := enforcement.CanonicalIP(a.cfg.ClientAddress(r)); err == nil {
		_ = s.check.AddAttribute("ip", canonical) // is valid
	}
	if cause == nil {
		_ = s.check.AddAttribute(byAPIKey, who.key.ID) // is valid
	} else {
		_ = s.check.AddAttribute(byFailure, "yes")
	}
	limit.engine.Decide(r.Context(), limit.subject, &s.check, &s.decision)
	h := w.Header()
	a.cfg.Headers.write(h, &s.decision, nil, false)
	h.Del("Content-Length") // of no body
	if !s.decision.Allowed {
		limit.denied.Add(1)
		return errTooManyRequests
	}
	return cause
}
