package decisions

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// denialsGrouped is the maximum number of denials that a page reads to make groups.
const denialsGrouped = 2000

// A grouping is one way to group denials, such as by route. The function of returns the name of
// the group to which a denial belongs.
type grouping struct {
	name string
	of   func(w *pages, r *metrics.Refusal) string
}

var groupings = []grouping{
	{"key", func(w *pages, r *metrics.Refusal) string {
		parts, _ := w.countedParts(r)
		return fmt.Sprint(r.Tenant, "\n", r.Policy, "\n", r.Reason, "\n", parts)
	}},
	{"policy", func(_ *pages, r *metrics.Refusal) string {
		if r.Policy == "" {
			return "\n" + string(r.Reason)
		}
		return r.Policy
	}},
	{"route", func(_ *pages, r *metrics.Refusal) string { return r.Route }},
}

// groupName returns the name of the grouping from the URL, or "" if the page lists single
// denials.
func groupName(q url.Values) string {
	for _, g := range groupings {
		if g.name == q.Get("group") {
			return g.name
		}
	}
	return ""
}

// groupLinks returns the links that select a grouping.
func (v *denialsView) groupLinks() []views.RangeLink {
	list := []views.RangeLink{{
		Text: "none", Label: "Single " + outcomes[v.of].things, URL: v.address(web.With(v.also, "group", "")), Current: v.group == "",
	}}
	for _, g := range groupings {
		list = append(list, views.RangeLink{
			Text: g.name, Label: "Group by " + g.name, URL: v.address(web.With(v.also, "group", g.name)), Current: v.group == g.name,
		})
	}
	return list
}

// A denialGroup has the denials that have the same value, such as the same route. newest is the
// newest of these denials.
type denialGroup struct {
	name    string
	newest  *metrics.Refusal
	count   int64
	tenants []uint32
	reasons map[enforcement.Reason]int64
}

// groupDenials groups denials. rows is sorted from the newest to the oldest. The groups are
// sorted by their number of denials, the largest first.
func (w *pages) groupDenials(v *denialsView, rows []metrics.Refusal) []*denialGroup {
	i := slices.IndexFunc(groupings, func(g grouping) bool { return g.name == v.group })
	var list []*denialGroup
	found := map[string]*denialGroup{}
	for k := range rows {
		r := &rows[k]
		name := groupings[i].of(w, r)
		g := found[name]
		if g == nil {
			g = &denialGroup{name: name, newest: r, reasons: map[enforcement.Reason]int64{}}
			found[name] = g
			list = append(list, g)
		}
		g.count++
		g.reasons[r.Reason]++
		if !slices.Contains(g.tenants, r.Tenant) {
			g.tenants = append(g.tenants, r.Tenant)
		}
	}
	slices.SortStableFunc(list, func(a, b *denialGroup) int { return int(b.count - a.count) })
	return list
}

// groupList returns the rows of a page that lists groups.
func (w *pages) groupList(v *denialsView, rows []metrics.Refusal) []views.DenialGroup {
	groups := w.groupDenials(v, rows)
	list := make([]views.DenialGroup, 0, min(denialsOnPage, len(groups)))
	for _, g := range groups[:min(denialsOnPage, len(groups))] {
		list = append(list, w.groupRow(v, g))
	}
	return list
}

func (w *pages) groupRow(v *denialsView, g *denialGroup) views.DenialGroup {
	r := g.newest
	row := views.DenialGroup{
		ID: groupID(g.name), Policy: r.Policy, Count: views.Count(g.count), N: g.count, Last: views.NewStamp(r.At, w.Now()),
		LastURL: w.denialURL(v, r), RetryAfter: retryNumber(r),
	}
	row.Reason, _ = outcomeWords(r)
	if len(g.reasons) > 1 {
		row.MoreReasons = len(g.reasons) - 1
	}
	if len(g.tenants) > 1 {
		row.Tenant = views.Quantity(int64(len(g.tenants)), "tenant", "tenants")
	} else {
		row.Tenant = r.TenantSlug
	}
	row.URL = v.address(w.groupFilter(v, g, &row))
	return row
}

// groupFilter returns the query parameters of a page that lists only the denials of group g. It
// also sets the name of the group in row.
func (w *pages) groupFilter(v *denialsView, g *denialGroup, row *views.DenialGroup) url.Values {
	r, of := g.newest, web.With(v.also, "group", "")
	switch v.group {
	case "route":
		row.Name = r.Route
		return web.With(of, "route", r.Route)
	case "policy":
		if row.Name = r.Policy; r.Policy == "" {
			row.Name = "No policy"
			return web.With(of, "reason", string(r.Reason))
		}
		return web.With(of, "policy", r.Policy)
	}
	row.Key.Parts, row.Key.Uncounted = w.shownKey(r)
	row.Key.Redacted = r.Redacted
	if v.tenant.ID == "" {
		of = web.With(of, "tenant", r.TenantSlug)
	}
	if r.Policy != "" {
		of = web.With(of, "policy", r.Policy)
	}
	for _, part := range row.Key.Parts {
		if !part.Missing && !r.Redacted {
			of = web.With(of, web.KeyFieldPrefix+part.Name, part.Value)
		}
	}
	return of
}

// groupID returns the HTML id of a group. It stays the same in each update of the page.
func groupID(name string) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // never fails
	return fmt.Sprintf("g-%x", sum.Sum64())
}

// groupSummary returns a sentence that says how many decisions the page groups. If there are more
// than it reads, the sentence also says since when: oldest is the time of the oldest one.
func (v *denialsView) groupSummary(groups, denials int, oldest string) string {
	of := outcomes[v.of]
	text := views.Quantity(int64(groups), "group", "groups") + " of "
	if denials == denialsGrouped {
		text += "the latest " + views.Count(denialsGrouped).Exact + " " + of.things + ", since " + oldest
	} else {
		text += views.Quantity(int64(denials), of.thing, of.things)
	}
	return text + ". The groups with most " + of.things + " are first."
}
