package api

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// RequestLimits limits the number of requests that are not checks, such as management and
// analytics. Each node counts on its own. The plans of the tenants limit checks.
type RequestLimits struct {
	// Limiter has the counters. Default: no limits.
	Limiter enforcement.Limiter
	// PerKey and PerAddress are the numbers of requests per minute that are allowed for one API
	// key, and from one address. All IPv6 addresses of a /64 network count as one. 0 means no
	// limit.
	PerKey, PerAddress int64
	// Denied is increased for each request that was denied. Default: denied requests are not
	// counted.
	Denied *atomic.Int64
}

// failuresShare limits requests without a valid key: of the requests per minute of PerAddress,
// one in failuresShare may be such a request.
const failuresShare = 20

// A requestLimit decides requests to the API with an engine, like the one that decides checks.
type requestLimit struct {
	engine  *enforcement.Engine
	subject *enforcement.Subject
	denied  *atomic.Int64
}

// The limits of requests to the API count by these two attributes.
const (
	byAPIKey  = "key"
	byFailure = "failed" // set for a request without a key that is valid for its address
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
// error of the authentication, or nil. limitRequest returns cause or, if a limit denies the
// request, errTooManyRequests.
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
