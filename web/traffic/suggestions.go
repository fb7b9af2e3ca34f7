package traffic

import (
	"context"
	"iter"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// suggested is the maximum number of values that a filter suggests.
const suggested = 200

// A vocabulary has the names that the filters of a page suggest. They are those of the plans in
// force, and each list has at most suggested names.
type vocabulary struct{ policies, routes, attributes []string }

// vocabularyOf returns the names of the plan of a tenant number, or of all plans (0).
func (w *pages) vocabularyOf(tenant uint32) vocabulary {
	var v vocabulary
	for plan := range w.plansOf(tenant) {
		for _, r := range plan.Rules {
			v.policies = append(v.policies, r.Policy)
			v.routes = append(v.routes, r.Pattern().String())
			v.attributes = append(v.attributes, attributesOf(r)...)
		}
	}
	for _, list := range []*[]string{&v.policies, &v.routes, &v.attributes} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
		*list = (*list)[:min(suggested, len(*list))]
	}
	return v
}

// hasPolicy reports whether the plan of a tenant number, or any plan (0), has a policy.
func (w *pages) hasPolicy(tenant uint32, slug string) bool {
	for plan := range w.plansOf(tenant) {
		if _, has := plan.Rule(slug); has {
			return true
		}
	}
	return false
}

// hasRoute reports whether the plan of a tenant number, or any plan (0), has a policy of a route.
// The route of requests that no policy matches is "(none)".
func (w *pages) hasRoute(tenant uint32, route string) bool {
	if route == "(none)" {
		return true
	}
	for plan := range w.plansOf(tenant) {
		if slices.ContainsFunc(plan.Rules, func(r *enforcement.Rule) bool { return r.Pattern().String() == route }) {
			return true
		}
	}
	return false
}

// plansOf yields the plan of a tenant number, or all plans (0).
func (w *pages) plansOf(tenant uint32) iter.Seq[*enforcement.Plan] {
	return func(yield func(*enforcement.Plan) bool) {
		s := w.cfg.Snapshot()
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

// tenantSlugs returns the slugs that the filter of the tenant suggests.
func (w *pages) tenantSlugs(ctx context.Context) ([]string, error) {
	list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Limit: suggested})
	slugs := make([]string, len(list))
	for i, t := range list {
		slugs[i] = t.Slug
	}
	slices.Sort(slugs)
	return slugs, err
}

// attributesOf returns the attributes that a policy counts by and matches.
func attributesOf(r *enforcement.Rule) []string {
	names := web.KeyAttributes(r.CountBy)
	for name := range r.Attributes {
		names = append(names, name)
	}
	return names
}
