package requests

import (
	"context"
	"iter"
	"net/url"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// suggested is the maximum number of values that a filter suggests.
const suggested = 200

// Names finds the names of tenants, policies and routes.
type Names struct {
	// Snapshot returns the compiled plans and tenants that this node uses.
	Snapshot func() *snapshot.Snapshot
	Tenants  *tenants.Service
}

// A Vocabulary has the names that the filters of a page suggest. They come from the current
// plans. Each list has at most suggested names.
type Vocabulary struct{ Policies, Routes, Attributes []string }

// Of returns the names in the plan of the tenant with this number. The number 0 stands for the
// plans of all tenants.
func (n Names) Of(tenant uint32) Vocabulary {
	var v Vocabulary
	for plan := range n.plansOf(tenant) {
		for _, r := range plan.Rules {
			v.Policies = append(v.Policies, r.Policy)
			v.Routes = append(v.Routes, r.Pattern().String())
			v.Attributes = append(v.Attributes, attributesOf(r)...)
		}
	}
	for _, list := range []*[]string{&v.Policies, &v.Routes, &v.Attributes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
		*list = (*list)[:min(suggested, len(*list))]
	}
	return v
}

// hasPolicy reports whether the plan of the tenant with this number has a policy. For the
// number 0, it searches all plans.
func (n Names) hasPolicy(tenant uint32, slug string) bool {
	for plan := range n.plansOf(tenant) {
		if _, has := plan.Rule(slug); has {
			return true
		}
	}
	return false
}

// hasRoute reports whether the plan of the tenant with this number has a policy with a route.
// For the number 0, it searches all plans. Requests to which no policy applies have the route
// "(none)".
func (n Names) hasRoute(tenant uint32, route string) bool {
	if route == "(none)" {
		return true
	}
	for plan := range n.plansOf(tenant) {
		if slices.ContainsFunc(plan.Rules, func(r *enforcement.Rule) bool { return r.Pattern().String() == route }) {
			return true
		}
	}
	return false
}

// plansOf iterates over the plan of the tenant with this number. For the number 0, it iterates
// over all plans.
func (n Names) plansOf(tenant uint32) iter.Seq[*enforcement.Plan] {
	return func(yield func(*enforcement.Plan) bool) {
		s := n.Snapshot()
		if s == nil {
			return
		}
		if tenant == 0 {
			s.Plans()(yield)
			return
		}
		if subject, known := s.SubjectByNumber(tenant); known && subject.Plan != nil {
			yield(subject.Plan)
		}
	}
}

// TenantSlugs returns the slugs that the filter by tenant suggests.
func (n Names) TenantSlugs(ctx context.Context) ([]string, error) {
	list, err := n.Tenants.Tenants(ctx, tenants.Filter{Limit: suggested})
	slugs := make([]string, len(list))
	for i, t := range list {
		slugs[i] = t.Slug
	}
	slices.Sort(slugs)
	return slugs, err
}

// attributesOf returns the attributes in the count_by of a policy and in its conditions.
func attributesOf(r *enforcement.Rule) []string {
	names := web.KeyAttributes(r.CountBy)
	for name := range r.Attributes {
		names = append(names, name)
	}
	return names
}

// NotApplied returns the error message for a filter that the page ignores. why is the first
// sentence of the message.
func NotApplied(why string) string { return why + ". This filter is not applied." }

// DropUnknown checks the policy and the route of the filters. If no plan has them, it removes
// them and adds an error message. It reports whether it removed any.
func (n Names) DropUnknown(tenant uint32, also url.Values, faults map[string]string) bool {
	dropped := false
	if slug := also.Get("policy"); slug != "" && !n.hasPolicy(tenant, slug) {
		faults["policy"], dropped = NotApplied("No policy in force has the slug "+slug), true
		also.Del("policy")
	}
	if route := also.Get("route"); route != "" && !n.hasRoute(tenant, route) {
		faults["route"], dropped = NotApplied("No policy in force has the route "+route), true
		also.Del("route")
	}
	return dropped
}

// Paused adds live=0 to the query parameters of links if the updates of the page are paused.
// The linked pages are then paused too.
func Paused(s web.TimeRange, also url.Values) url.Values {
	if s.Live || s.Preset == "" {
		return also
	}
	return web.With(also, "live", "0")
}

// ErrNoFilter is the error of a stream of live updates whose URL has an invalid filter.
var ErrNoFilter = problem.New(problem.Invalid, "one filter of this page is invalid")

// Slug returns the slug of the tenant that has this number, or "" if the tenant was deleted.
func (n Names) Slug(number uint32) string {
	if s, ok := n.Snapshot().SubjectByNumber(number); ok {
		return s.Tenant
	}
	return ""
}
