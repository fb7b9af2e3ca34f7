package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
)

// show adds the policies and their figures to the preview.
func (r *run) show(ctx context.Context) error {
	for i := range r.draft.policies {
		if err := r.showPolicy(ctx, i); err != nil {
			return err
		}
	}
	for i := range r.published.policies {
		p := &r.published.policies[i]
		if r.draft.place(p.Slug) >= 0 {
			continue
		}
		if err := r.showRemoved(ctx, p); err != nil {
			return err
		}
	}
	for i := range r.preview.Policies {
		p := &r.preview.Policies[i]
		if q := r.replays[p.Slug]; q != nil && q.Requests > 0 {
			p.Replay = q
		}
	}
	r.showTotal()
	return nil
}

func (r *run) showPolicy(ctx context.Context, i int) (err error) {
	p, v := &r.draft.policies[i], &r.verdicts[i]
	out := Policy{Slug: p.Slug, Change: Added, Mode: p.Mode, CountBy: p.CountBy, Limits: p.Limits, Certainty: v.certainty, Why: v.why}
	if r.preview.Published == 0 && v.certainty == NeedsShadow {
		out.Certainty, out.Why = NeedsShadow, "No version of the plan is published yet, so no requests were counted under it."+advice
	}
	if v.source >= 0 {
		out.Source = r.published.policies[v.source].Slug
	}
	applied := out.Source
	if at := r.published.place(p.Slug); at >= 0 {
		q := &r.published.policies[at]
		out.Was, out.Change, applied = q.Mode, Changed, p.Slug
		if sameDecisions(p, q) && p.OnFailure == q.OnFailure {
			out.Change = Same
		}
		if out.Published, out.Shadow, err = r.recorded(ctx, q); err != nil {
			return err
		}
	}
	for _, m := range r.members {
		out.Requests += m.counts(applied).Requests
	}
	out.From = r.countsFrom(applied)
	for _, n := range []string{r.cutNote(applied), r.historyNote(applied)} {
		if n != "" {
			out.Notes = append(out.Notes, n)
		}
	}
	if v.how == howReplayed {
		r.doubt(&out, i)
	}
	if out.Certainty != NeedsShadow {
		if out.Draft, err = r.drafted(ctx, i); err != nil {
			return err
		}
	}
	r.preview.Policies = append(r.preview.Policies, out)
	return nil
}

// showRemoved adds a policy that is published and that the draft does not have.
func (r *run) showRemoved(ctx context.Context, p *plans.Policy) (err error) {
	out := Policy{
		Slug: p.Slug, Change: Removed, Mode: p.Mode, Was: p.Mode, CountBy: p.CountBy, Limits: p.Limits, Source: p.Slug,
		Certainty: Exact, Why: "The draft removes the policy, so it no longer denies requests.", Draft: new(Figure),
		From: r.countsFrom(p.Slug),
	}
	for _, m := range r.members {
		out.Requests += m.counts(p.Slug).Requests
	}
	out.Published, out.Shadow, err = r.recorded(ctx, p)
	r.preview.Policies = append(r.preview.Policies, out)
	return err
}

// recorded returns the counted denials of a published policy in published. If the policy denies
// nothing, it instead returns the counted requests that were over its limits, in shadow. The
// other result is nil. For a policy in mode off, both are nil.
func (r *run) recorded(ctx context.Context, p *plans.Policy) (published, shadow *Figure, err error) {
	of := (*metrics.Counts).Limited
	if !p.Mode.Denies() {
		of = func(c *metrics.Counts) int64 { return c.ShadowRefused }
	}
	if !p.Mode.Counts() {
		return nil, nil, nil
	}
	var s sums
	for _, m := range r.members {
		c := m.counts(p.Slug)
		s.add(m, counted(c.Requests, of(c)))
	}
	f := s.figure()
	if f.Routes, err = r.routes(ctx, p, &s); err != nil {
		return nil, nil, err
	}
	if !p.Mode.Denies() {
		return nil, f, nil
	}
	return f, nil, nil
}

// drafted returns the denials that the policy with the index i in the draft would cause.
func (r *run) drafted(ctx context.Context, i int) (f *Figure, err error) {
	var s sums
	for _, m := range r.members {
		s.add(m, m.parts[i])
	}
	f = s.figure()
	switch r.verdicts[i].how {
	case howCounted, howShadow:
		f.Routes, err = r.routes(ctx, &r.published.policies[r.verdicts[i].source], &s)
	case howReplayed:
		f.Keys = s.topKeys()
	}
	return f, err
}

// doubt adds a note to out for each kind of request that the estimate of policy i leaves out.
// If the estimate leaves out most requests, doubt removes the estimate and sets the certainty
// NeedsShadow.
func (r *run) doubt(out *Policy, i int) {
	var all, wide int64
	why, exempt := map[string]int{}, 0
	requests := map[string]int64{}
	for _, m := range r.members {
		p := &m.parts[i]
		all += p.requests
		if p.overridden {
			exempt++
		}
		if p.unread != "" {
			why[p.unread]++
			requests[p.unread] += p.requests
			wide += p.requests
		}
	}
	share := func(n int64) string { return fmt.Sprintf("%.3g%%", 100*float64(n)/float64(max(1, all))) }
	if n := requests[unreadCost]; 2*n > all {
		out.Certainty, out.Source = NeedsShadow, ""
		out.Why = "Tenants with " + share(n) + " of the requests have requests with a cost other than 1, and the cost of each request is " +
			"unknown." + advice
		r.verdicts[i].how = howNone
		return
	}
	if n := why[unreadMany]; n > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("The minutes of the busiest tenants are replayed. For %s with %s of the requests, the "+
			"estimate is the number of earlier denials, with the widest possible bounds.",
			number(n, "other tenant", "other tenants"), share(requests[unreadMany])))
	}
	if n := why[unreadOverrides]; n > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%s with %s of the requests have overrides of the policy, whose numbers do not change: "+
			"the estimate for them is the number of earlier denials.",
			number(n, "tenant", "tenants"), share(requests[unreadOverrides])))
	}
	if exempt > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%s overrides of the policy for some keys, whose numbers do not change: the estimate for "+
			"these keys is the number of their earlier denials.", number(exempt, "tenant has", "tenants have")))
	}
	if n := why[unreadCost]; n > 0 {
		out.Notes = append(out.Notes,
			fmt.Sprintf("%s with %s of the requests have requests with a cost other than 1: the estimate for them is the number of earlier denials.",
				number(n, "tenant", "tenants"), share(requests[unreadCost])))
	}
	if !slices.ContainsFunc(r.members, func(m *member) bool { return m.parts[i].low != m.parts[i].high }) {
		return
	}
	source := r.published.policies[r.verdicts[i].source].Slug
	if warm := int(r.countsFrom(source).Sub(maxTime(r.data, r.cuts[source].at)).Minutes()); warm < warmUp(r.draft.policies[i].Limits) {
		out.Notes = append(out.Notes, "The recorded counts start less than one window before the span, so counters may have been used up at its "+
			"start. The upper bound assumes that they were.")
	}
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(int64(n)) + " " + many
}

// showTotal sets the bounds and the estimate of the number of requests that all enforced
// policies together deny.
func (r *run) showTotal() {
	if r.preview.Published == 0 {
		return
	}
	total, known := new(Bounds), true
	for _, m := range r.members {
		var b Bounds
		var estimate, floor int64
		for i := range r.draft.policies {
			switch p := &m.parts[i]; {
			case !r.draft.policies[i].Mode.Denies():
			default:
				known = known && !r.partlyKnown(i)
				b.Low, b.High = b.Low+p.low, b.High+p.high
				estimate, floor = estimate+p.refused, max(floor, p.floor)
			}
		}
		b.High = min(b.High, m.total.Requests)
		b.Low = min(max(b.Low, floor), b.High)
		total.Low, total.High = total.Low+b.Low, total.High+b.High
		r.preview.Estimate += min(max(estimate, b.Low), b.High)
	}
	r.preview.AtLeast = total.Low
	if known {
		r.preview.Total = total
	}
}

// sums adds up the parts of all tenants to a Figure.
type sums struct {
	f       Figure
	request int64
	tenants []TenantFigure
	numbers []uint32 // numbers of the tenants with denials; figure sorts them by denials, the most first
	refused map[uint32]int64
	keys    []KeyFigure
}

func (s *sums) add(m *member, p part) {
	s.request += p.requests
	s.f.Refused, s.f.Low, s.f.High = s.f.Refused+p.refused, s.f.Low+p.low, s.f.High+p.high
	if p.refused > 0 {
		s.f.AllTenants++
		s.numbers = append(s.numbers, m.Number)
		if s.refused == nil {
			s.refused = make(map[uint32]int64)
		}
		s.refused[m.Number] = p.refused
	}
	if p.high > 0 {
		s.tenants = append(s.tenants, TenantFigure{
			ID: m.ID, Slug: m.Slug, Name: m.Name, Requests: p.requests, Refused: p.refused, Low: p.low, High: p.high, Unread: p.unread,
		})
	}
	s.keys = append(s.keys, p.keys...)
}

func (s *sums) figure() *Figure {
	f := s.f
	if s.request > 0 {
		f.Rate = float64(f.Refused) / float64(s.request)
	}
	slices.SortStableFunc(s.tenants, func(a, b TenantFigure) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.High, a.High), cmp.Compare(a.Slug, b.Slug))
	})
	f.Tenants = s.tenants[:min(maxShown, len(s.tenants))]
	slices.SortStableFunc(s.numbers, func(a, b uint32) int { return cmp.Compare(s.refused[b], s.refused[a]) })
	return &f
}

func (s *sums) topKeys() []KeyFigure {
	slices.SortStableFunc(s.keys, func(a, b KeyFigure) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Tenant, b.Tenant),
			slices.Compare(a.Values, b.Values))
	})
	return s.keys[:min(maxShown, len(s.keys))]
}

// routeTenants is the maximum number of tenants whose counts by route are read. These are the
// tenants with the most denials.
const routeTenants = 100

// routes returns the routes on which requests may have been over a limit of the published policy p.
// The counts have them by route, but not by route and policy. If another policy that denies as p
// does can count requests of the route, the number may include its denials; then Exact is false.
// routes reads the counts of at most routeTenants tenants. If there are more, Exact is false
// for every route.
func (r *run) routes(ctx context.Context, p *plans.Policy, s *sums) ([]RouteFigure, error) {
	if len(s.numbers) == 0 {
		return nil, nil
	}
	rows, _, err := r.service.c.Analytics.Sums(ctx, metrics.SumQuery{
		From: r.countsFrom(p.Slug), To: r.preview.To, Tenants: s.numbers[:min(routeTenants, len(s.numbers))], Kind: metrics.KindRoute,
	})
	if err != nil {
		return nil, err
	}
	byRoute := make(map[string]*metrics.Counts)
	for i := range rows {
		c := byRoute[rows[i].Name]
		if c == nil {
			c = new(metrics.Counts)
			byRoute[rows[i].Name] = c
		}
		c.Add(&rows[i].Counts)
	}
	var list []RouteFigure
	for route, c := range byRoute {
		refused := c.Limited()
		if !p.Mode.Denies() {
			refused = c.ShadowRefused
		}
		mine, others := r.refusers(p, route)
		if refused == 0 || !mine {
			continue
		}
		list = append(list, RouteFigure{
			Route: route, Refused: min(refused, s.f.Refused), Requests: c.Requests,
			Exact: others == 0 && len(s.numbers) <= routeTenants,
		})
	}
	slices.SortFunc(list, func(a, b RouteFigure) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Route, b.Route))
	})
	return list[:min(maxShown, len(list))], nil
}

// refusers looks for published policies that have the mode of p and can deny requests of a
// route. mine says whether p is one of them. others is the number of the others.
func (r *run) refusers(p *plans.Policy, route string) (mine bool, others int) {
	pattern, err := enforcement.ParsePattern(route)
	if err != nil {
		return false, 0 // a name like "(none)" or "(folded)", which is not a path pattern
	}
	for i := range r.published.policies {
		q := r.published.patterned(i)
		switch {
		case !q.Mode.Counts() || q.Mode.Denies() != p.Mode.Denies() || len(q.Limits) == 0 || !q.pattern.Overlaps(pattern):
		case q.Slug == p.Slug:
			mine = true
		default:
			others++
		}
	}
	return mine, others
}
