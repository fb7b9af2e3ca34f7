package tenants

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/views"
)

const (
	// tenantsSorted is the maximum number of tenants that the list reads, so that it can sort them
	// and add up their counts.
	tenantsSorted = 1000
	// limitReads is the number of tenants for which a page reads limits from the limiter at the
	// same time.
	limitReads = 8
	// limitsWithin is the maximum time that a page waits for the limiter.
	limitsWithin = 500 * time.Millisecond
)

// A countedTenant is a tenant with its counts of the last 24 hours.
type countedTenant struct {
	tenants.Tenant
	counts metrics.Counts
}

// tenantOrders are the sort orders of the list. The first one is the order in which the store
// returns tenants.
var tenantOrders = []struct {
	name, label string
	compare     func(a, b *countedTenant) int
}{
	{"", "Oldest first", nil},
	{"newest", "Newest first", func(a, b *countedTenant) int { return strings.Compare(b.ID, a.ID) }},
	{"name", "Name", func(a, b *countedTenant) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Slug, b.Slug))
	}},
	{"requests", "Most requests", func(a, b *countedTenant) int { return cmp.Compare(b.counts.Requests, a.counts.Requests) }},
	{"rate", "Highest 429 rate", func(a, b *countedTenant) int {
		return cmp.Or(cmp.Compare(limitedRate(b), limitedRate(a)), cmp.Compare(b.counts.Requests, a.counts.Requests))
	}},
}

func limitedRate(t *countedTenant) float64 {
	return float64(t.counts.Limited()) / float64(max(1, t.counts.Requests))
}

// A tenantListing is one request for the list of tenants.
type tenantListing struct {
	values url.Values // the filters and the order in the address
	filter tenants.Filter
	page   int // page number, from 1, if the list reads all tenants and sorts them
}

func readTenantListing(c echo.Context) tenantListing {
	q := c.QueryParams()
	l := tenantListing{values: url.Values{}, filter: tenants.Filter{After: web.After(c), Limit: tenantsSorted + 1}, page: 1}
	for _, name := range []string{"q", "plan", "status", "sort"} {
		if value := strings.TrimSpace(q.Get(name)); value != "" {
			l.values.Set(name, value)
		}
	}
	l.filter.Query, l.filter.Plan = l.values.Get("q"), l.values.Get("plan")
	switch status := tenants.Status(l.values.Get("status")); status {
	case tenants.Active, tenants.Suspended:
		l.filter.Status = status
	default:
		l.values.Del("status")
	}
	if !slices.Contains(views.Options(l.orders()), l.values.Get("sort")) {
		l.values.Del("sort")
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 && n <= tenantsSorted/web.PageRows {
		l.page = n
	}
	return l
}

func (l *tenantListing) orders() []views.Option {
	var list []views.Option
	for _, o := range tenantOrders {
		list = append(list, views.Option{Value: o.name, Label: o.label})
	}
	return list
}

// address returns the URL of the first page of the list, with one query parameter changed.
func (l *tenantListing) address(name, value string) string {
	return web.AppendQuery("/tenants", web.With(l.values, name, value))
}

// listTenants is GET /tenants.
func (w *pages) listTenants(c echo.Context) error {
	ctx, l := c.Request().Context(), readTenantListing(c)
	found, err := w.cfg.Tenants.Tenants(ctx, l.filter)
	if err != nil {
		return err
	}
	more := len(found) > tenantsSorted
	found = found[:min(tenantsSorted, len(found))]
	list, total, err := w.counted(ctx, found)
	if err != nil {
		return err
	}
	for _, o := range tenantOrders {
		if o.compare != nil && o.name == l.values.Get("sort") {
			slices.SortStableFunc(list, func(a, b countedTenant) int { return o.compare(&a, &b) })
		}
	}
	v := views.Tenants{Query: l.filter.Query, Narrow: len(web.With(l.values, "sort", "")) > 0}
	v.Notice = web.Notice(c)
	if v.Saved, err = w.saved.Bar(c, saved.Tenants); err != nil {
		return err
	}
	if err := w.tenantFilters(ctx, &v, &l); err != nil {
		return err
	}
	v.Total = totalWords(found, &total, more || l.filter.After != "")
	first := min((l.page-1)*web.PageRows, len(list))
	shown := list[first:min(first+web.PageRows, len(list))]
	v.Rows = w.listedTenants(ctx, shown)
	w.tenantPager(c, &v, &l, first+len(shown) < len(list), more, found)
	if web.May(c, accounts.TenantWrite) {
		v.NewURL = "/tenants/new"
	}
	v.Empty = views.Empty{
		Title: "No tenants", Text: "A tenant is one of your customers. Create a tenant, create an API key for it, and send its checks.",
	}
	if v.NewURL != "" {
		v.Empty.Link = views.Link{Text: "New tenant", URL: v.NewURL}
	}
	return w.Render(c, http.StatusOK, views.TenantsPage(w.Page(c, "Tenants"), v))
}

// tenantPager sets the links to the next and previous pages of the list.
func (w *pages) tenantPager(c echo.Context, v *views.Tenants, l *tenantListing, next, more bool, found []tenants.Tenant) {
	page := func(values url.Values, n int) string {
		if n > 1 {
			values = web.With(values, "page", strconv.Itoa(n))
		}
		return web.AppendQuery("/tenants", values)
	}
	here := web.With(l.values, "after", web.After(c))
	switch {
	case next:
		v.Next = page(here, l.page+1)
	case more:
		v.Next = page(web.With(l.values, "after", found[len(found)-1].ID), 1)
	}
	if l.page > 1 || l.filter.After != "" {
		v.FirstURL = page(l.values, 1)
	}
	for _, column := range []string{"name", "requests", "rate", "newest"} {
		v.Sorts = append(v.Sorts, views.SortLink{URL: l.address("sort", column), Current: l.values.Get("sort") == column})
	}
}

// tenantFilters sets the form of the list.
func (w *pages) tenantFilters(ctx context.Context, v *views.Tenants, l *tenantListing) error {
	v.Plan = views.Select{Name: "plan", Label: "Plan", Value: l.filter.Plan, Optional: true, Options: []views.Option{{Label: "Any"}}}
	list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Limit: plansInForm})
	if err != nil {
		return err
	}
	known := l.filter.Plan == ""
	for _, p := range list {
		known = known || p.Slug == l.filter.Plan
		v.Plan.Options = append(v.Plan.Options, views.Option{Value: p.Slug, Label: planLabel(p)})
	}
	if !known {
		v.Plan.Options = append(v.Plan.Options, views.Option{Value: l.filter.Plan, Label: l.filter.Plan})
		v.Plan.Error = "No plan has the slug " + l.filter.Plan + "."
	}
	v.Status = views.Select{Name: "status", Label: "Status", Value: string(l.filter.Status), Optional: true, Options: []views.Option{
		{Label: "Any"}, {Value: string(tenants.Active), Label: "Active"}, {Value: string(tenants.Suspended), Label: "Suspended"},
	}}
	v.Sort = views.Select{Name: "sort", Label: "Order", Value: l.values.Get("sort"), Optional: true, Options: l.orders()}
	return nil
}

// totalWords returns a sentence with the totals of the tenants in a list. part says that the
// list has more tenants, which are not in the totals.
func totalWords(found []tenants.Tenant, total *metrics.Counts, part bool) string {
	if len(found) == 0 {
		return ""
	}
	suspended := 0
	for i := range found {
		if found[i].Status == tenants.Suspended {
			suspended++
		}
	}
	text := views.Quantity(int64(len(found)), "tenant", "tenants")
	if part {
		text = "These " + text
	}
	if suspended > 0 {
		text += ", " + views.Count(int64(suspended)).Exact + " suspended"
	}
	text += ": " + views.Quantity(total.Requests, "request", "requests") + " in the last 24 hours"
	if total.Requests > 0 {
		text += ", " + views.Percent(total.Limited(), total.Requests).Text + " denied by limits"
	}
	return text + "."
}

// counted returns tenants with their counts of the last 24 hours, and the total of these
// counts. It reads all counts with one query.
func (w *pages) counted(ctx context.Context, list []tenants.Tenant) (counted []countedTenant, total metrics.Counts, err error) {
	if len(list) == 0 {
		return nil, total, nil
	}
	now := w.Now()
	q := metrics.SumQuery{From: now.Add(-web.Day), To: now, Kind: metrics.KindTotal}
	for i := range list {
		q.Tenants = append(q.Tenants, list[i].Number)
	}
	rows, _, err := w.cfg.Analytics.Sums(ctx, q)
	counts := make(map[uint32]metrics.Counts, len(rows))
	for i := range rows {
		counts[rows[i].Tenant] = rows[i].Counts
		total.Add(&rows[i].Counts)
	}
	counted = make([]countedTenant, len(list))
	for i := range list {
		counted[i] = countedTenant{list[i], counts[list[i].Number]}
	}
	return counted, total, err
}

// listedTenants returns the rows of a page. Each row has the limit of the tenant that is
// nearest to exhaustion. If the limiter does not answer, the rows have no limits.
func (w *pages) listedTenants(ctx context.Context, list []countedTenant) []views.ListedTenant {
	rows := make([]views.ListedTenant, len(list))
	bounded, cancel := context.WithTimeout(ctx, limitsWithin)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(limitReads)
	for i := range list {
		t := &list[i]
		rows[i] = views.ListedTenant{
			Name: t.Name, Slug: t.Slug, URL: web.TenantURL(t.Tenant, ""), Plan: t.Plan, PlanURL: web.PlanURL(t.Plan),
			Suspended: t.Status == tenants.Suspended, Created: views.NewMoment(t.CreatedAt, w.Now()),
			Requests: views.Count(t.counts.Requests), Unmatched: views.Count(t.counts.Unmatched),
			Rate: views.Percent(t.counts.Limited(), t.counts.Requests), Tone: rateTone(t.counts),
		}
		group.Go(func() error {
			u, err := w.cfg.Usage.WholeTenant(bounded, t.ID)
			if near := u.Nearest(1); err == nil && len(near) > 0 {
				rows[i].Near = nearWords(&near[0])
			}
			return nil // a tenant whose counters cannot be read stays in the list
		})
	}
	_ = group.Wait() // never returns an error
	return rows
}

func nearWords(n *usage.NearLimit) views.ListedLimit {
	l := views.ListedLimit{
		Policy: n.Policy.Policy, Used: views.Percent(n.Limit.Capacity-n.Limit.Remaining, n.Limit.Capacity),
		N: n.Limit.Capacity - n.Limit.Remaining, Most: max(1, n.Limit.Capacity), Limit: plans.Describe(n.Limit.Limit),
	}
	switch share := n.Limit.Share(); {
	case n.Limit.Remaining == 0:
		l.Tone = "bad"
	case share >= 0.8:
		l.Tone = "warn"
	}
	return l
}
