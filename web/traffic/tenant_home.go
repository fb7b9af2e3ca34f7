package traffic

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/export"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/share"
	"github.com/headgate/headgate/web/views"
)

// leftEvery is how often a live page of a tenant reads the remaining quota.
const leftEvery = 2 * time.Second

// tenantHome is GET /tenants/{tenant}.
func (w *pages) tenantHome(c echo.Context) error {
	ctx, t := c.Request().Context(), web.TenantOf(c)
	s, path, also := w.TimeRange(c), web.TenantURL(t, ""), url.Values{}
	fault := chosen(c, also)
	v := views.TenantHome{
		Head: w.TenantHead(c, ""), Name: t.Name, Slug: t.Slug, Plan: t.Plan, Notice: web.Notice(c),
		CSVURL: s.Address(path+"/usage.csv", nil), ShareURL: w.share.URL(c),
	}
	if web.May(c, accounts.PlansRead) {
		v.PlanURL = web.PlanURL(t.Plan)
	}
	var err error
	if v.Left, v.Version, err = w.left(c); err != nil {
		return err
	}
	if v.Beside, err = w.besides(ctx, t); err != nil {
		return err
	}
	if v.Traffic, err = w.traffic(c, s, t.Number, path, also); err != nil {
		return err
	}
	setChoiceFault(&v.Traffic, fault)
	if v.Traffic.Empty != nil {
		named := "" // members use a key of their own tenant, so the request need not name the tenant
		if !isMember(c) {
			named = t.Slug
		}
		v.Traffic.Empty.Curl = requests.SampleCheck(w.Origin(c), named)
		v.Traffic.Empty.Link = views.Link{Text: "API keys", URL: web.APIKeysURL(t)}
		if web.MayInTenant(c, accounts.KeysWrite) {
			v.Traffic.Empty.KeyAction = web.APIKeysURL(t)
		}
	}
	v.Ranges = s.Picker(path, requests.Paused(s, also), true)
	p := w.Page(c, t.Name)
	p.Crumbs = w.TenantCrumbs(c, "")
	if len(p.Crumbs) == 1 {
		p.Crumbs = nil // the page has no breadcrumbs, only the title
	}
	p.Charts, p.Live = true, trafficLive(s, path+"/live", also, v.Traffic)
	status := http.StatusOK
	if fault != "" {
		status = http.StatusUnprocessableEntity
	}
	return w.Render(c, status, views.TenantHomePage(p, v))
}

// tenantLive is GET /tenants/{tenant}/live. It streams the updates of the page of a tenant.
func (w *pages) tenantLive(c echo.Context) error {
	t := web.TenantOf(c)
	s := w.TimeRange(c)
	also := url.Values{}
	chosen(c, also)
	traffic := w.liveTraffic(c, t.Number, web.TenantURL(t, ""), also)
	var asked time.Time
	return w.Stream(c, s.Interval(), func(ctx context.Context) ([]web.Fragment, error) {
		list, err := traffic(ctx)
		if time.Since(asked) < leftEvery {
			return list, err
		}
		asked = time.Now()
		u, failed := w.cfg.Usage.Tenant(ctx, t.ID)
		if failed != nil && !inPlace(failed) {
			return list, failed
		}
		l := w.leftOf(ctx, t, u, failed)
		if web.VisitorOf(c).Display != nil {
			l = views.Left{Error: l.Error, Near: l.Near}
			share.WithoutLinks(&l)
			return append(list, web.Fragment{Event: "near", Body: views.NearBody(l)}), err
		}
		return append(list, web.Fragment{Event: "near", Body: views.NearBody(l)}, web.Fragment{Event: "left", Body: views.LeftBody(l)}), err
	})
}

// inPlace reports whether the page shows an error only in place of the remaining quota. With
// other errors, the whole page fails.
func inPlace(err error) bool {
	return problem.Is(err, problem.Unavailable) || problem.Is(err, problem.NotFound)
}

// left returns the remaining quota of the tenant in the URL, and the version of its plan.
func (w *pages) left(c echo.Context) (views.Left, string, error) {
	t := web.TenantOf(c)
	u, err := w.cfg.Usage.Tenant(c.Request().Context(), t.ID)
	if err != nil && !inPlace(err) {
		return views.Left{}, "", err
	}
	version := ""
	if u.PlanVersion > 0 {
		version = " · version " + strconv.Itoa(u.PlanVersion)
	}
	l := w.leftOf(c.Request().Context(), t, u, err)
	if l.Empty.Title != "" && web.May(c, accounts.TenantWrite) {
		l.Empty.Link = views.Link{Text: "Choose a plan", URL: web.SettingsURL(t)}
	}
	return l, version, nil
}

// leftOf returns the view of a tenant's remaining quota. If err is set, the view has this
// error.
func (w *pages) leftOf(ctx context.Context, t tenants.Tenant, u usage.Usage, err error) views.Left {
	switch {
	case problem.Is(err, problem.NotFound):
		return views.Left{Error: "This node has not loaded the tenant yet. Try again in a moment."}
	case err != nil:
		return views.Left{Error: "The remaining quota is unknown because Redis does not answer. The failure modes of the policies decide checks."}
	case u.Plan == "":
		return views.Left{Empty: views.Empty{Title: "No plan", Text: "Headgate counts nothing for a tenant without a plan."}}
	case len(u.Policies) == 0:
		return views.Left{Empty: views.Empty{Title: "No policies", Text: "The plan has no policies, so Headgate counts nothing."}}
	}
	var l views.Left
	for i := range u.Policies {
		l.Policies = append(l.Policies, leftPolicy(ctx, t, &u.Policies[i]))
	}
	for _, n := range u.Nearest(nearestLimits) {
		l.Near = append(l.Near, nearLimit(t, &n))
	}
	if c := u.Counters; c != nil {
		l.Known, l.Counters, l.MaxCounters, l.Crowded = true, views.Count(c.Live), views.Count(c.Max), crowded(c)
	}
	return l
}

// nearestLimits is the number of limits at the top of a tenant's page. These are the limits
// with the least remaining quota.
const nearestLimits = 3

func nearLimit(t tenants.Tenant, n *usage.NearLimit) views.NearLimit {
	v := views.NearLimit{
		Policy: n.Policy.Policy, Words: web.KeyWords(n.Key.Attributes(), n.Policy.CountBy),
		URL: web.KeyURL(t, n.Policy.Policy, n.Key.Attributes()), Limit: leftLimit(n.Limit, &n.Key.Pace),
	}
	if n.Key.Block != nil {
		v.Badge = "blocked"
	} else if n.Key.Override != nil {
		v.Badge = "override"
	}
	return v
}

// crowded returns a warning if a tenant has reached, or has nearly reached, the maximum number
// of counters. Otherwise it returns "".
func crowded(c *usage.Counters) string {
	switch {
	case c.Full:
		return "This tenant has as many counters as it may have. New keys of a limit share one counter, so some of them are denied early."
	case float64(c.Live) >= 0.8*float64(c.Max):
		return "This tenant has more than 80% of the counters that it may have. Above that number, new keys of a limit share one counter."
	}
	return ""
}

func leftPolicy(ctx context.Context, t tenants.Tenant, p *usage.PolicyUsage) views.LeftPolicy {
	v := views.LeftPolicy{
		ID: "left-" + p.Policy, Slug: p.Policy, Whole: len(p.CountBy) == 0,
		Applies: web.MatchWords(plans.Match{Methods: p.Methods, Path: p.Path, Attributes: p.Attributes}) +
			", counted for " + web.CountByWords(p.CountBy),
	}
	if !p.Mode.Denies() {
		v.Mode = string(p.Mode)
	}
	holds := func(l usage.LimitUsage) bool { return l.Limit.Algorithm == enforcement.Concurrency }
	if v.Whole && len(p.Keys) > 0 && slices.ContainsFunc(p.Keys[0].Limits, holds) {
		v.HoldersURL = web.KeyURL(t, p.Policy, nil)
	}
	if !v.Whole && p.Pace.Known && p.Pace.PerMinute+p.Pace.RefusedPerMinute > 0 {
		v.Pace = "All keys: " + paceWords(&p.Pace) + "."
	}
	for i := range p.Keys {
		v.Keys = append(v.Keys, leftKey(ctx, t, p, i))
	}
	switch {
	case !p.Mode.Counts():
		v.Note = "The policy is off and counts nothing."
	case len(p.Keys) == 0 && p.Mode == enforcement.PolicyShadow:
		v.Note = "The policy is in shadow. Its keys are not ranked."
	case len(p.Keys) == 0:
		v.Note = "No key has requests in the last hour."
	case p.Keys[0].Redacted:
		v.Note = "This tenant does not keep values, so the remaining quota of each key is unknown."
	case p.More && !v.Whole:
		v.Note = "These are the busiest keys of the last hour. There are more."
	}
	return v
}

func leftKey(ctx context.Context, t tenants.Tenant, p *usage.PolicyUsage, i int) views.LeftKey {
	k := &p.Keys[i]
	v := views.LeftKey{ID: "left-" + p.Policy + "-" + strconv.Itoa(i), Words: web.KeyWords(k.Attributes(), p.CountBy)}
	if k.Redacted {
		v.Words = "hash " + strings.Join(hashes(k.Key), ", ")
	} else {
		v.URL = web.KeyURL(t, p.Policy, k.Attributes())
	}
	if k.Override != nil {
		v.Override = "override until " + views.InZone(ctx, k.Override.Until, "2 Jan 15:04")
	}
	if k.Block != nil {
		v.Block = "blocked until " + views.InZone(ctx, k.Block.Until, "2 Jan 15:04")
	}
	for j := range k.Limits {
		v.Limits = append(v.Limits, leftLimit(&k.Limits[j], &k.Pace))
	}
	return v
}

// hashes returns shortened hashes of the values in a key. For a tenant with redact_values,
// Headgate stores hashes instead of values.
func hashes(key []enforcement.KeyPart) []string {
	var list []string
	for _, part := range key {
		list = append(list, part.Name+" "+part.Value[:min(12, len(part.Value))])
	}
	return list
}

func leftLimit(l *usage.LimitUsage, pace *usage.Pace) views.LeftLimit {
	v := views.LeftLimit{
		Aloud: plans.Describe(l.Limit), Used: views.Count(l.Used), Capacity: views.Count(l.Capacity),
		N: l.Used, Most: max(l.Capacity, 1),
	}
	if l.ResetAfter > 0 {
		v.Reset = "resets in " + views.Duration(l.ResetAfter).Text
	}
	if !l.ResetsAt.IsZero() {
		v.Reset = "resets on " + l.ResetsAt.Format("2 Jan, 15:04 ") + l.ResetsAt.Location().String()
	}
	if l.RolledOver > 0 {
		v.Reset = views.Count(l.RolledOver).Exact + " of them rolled over · " + v.Reset
	}
	if l.Limit.Algorithm == enforcement.Concurrency {
		return leftPlaces(v, l)
	}
	for _, g := range l.Grants {
		v.Reset = strings.TrimPrefix(v.Reset+", ", ", ") + views.Count(g.Left).Exact + " of a grant of " + views.Count(g.Units).Exact + " left"
	}
	switch {
	case l.Remaining == 0:
		v.Tone, v.Ends = "bad", "used up"
	case l.ExhaustedAfter != nil && *l.ExhaustedAfter == 0:
		v.Tone, v.Ends = "bad", "the next request is denied at "+paceWords(pace)
	case l.ExhaustedAfter != nil:
		v.Ends = "used up in " + views.Duration(*l.ExhaustedAfter).Text + " at " + paceWords(pace)
		if *l.ExhaustedAfter < l.Window || l.Used*10 >= l.Capacity*8 {
			v.Tone = "warn"
		}
	case !pace.Known:
		v.Ends = "the rate is unknown"
	case pace.PerMinute+pace.RefusedPerMinute == 0:
		v.Ends = "no requests in the last minutes"
	default:
		v.Ends = "does not run out at " + paceWords(pace)
	}
	return v
}

// leftPlaces completes the view of a concurrency limit, which limits how many requests run at
// the same time. Its remaining quota is the number of free places.
func leftPlaces(v views.LeftLimit, l *usage.LimitUsage) views.LeftLimit {
	switch {
	case l.Remaining == 0:
		v.Tone, v.Ends = "bad", "all places are held"
	case l.Used*10 >= l.Capacity*8:
		v.Tone, v.Ends = "warn", "places held now"
	default:
		v.Ends = "places held now"
	}
	if l.ResetAfter > 0 {
		v.Reset = "the last lease ends in " + views.Duration(l.ResetAfter).Text
	}
	return v
}

// paceWords returns the current rate of requests as text, such as "83 per minute" or "80 to 83
// per minute".
func paceWords(p *usage.Pace) string {
	most := p.PerMinute + p.RefusedPerMinute
	words := rateWords(most)
	if least := most - p.Error; p.Error > 0 && rateWords(least) != words {
		words = rateWords(least) + " to " + words
	}
	return words + " per minute"
}

func rateWords(f float64) string {
	if f < 10 && f != float64(int64(f)) {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return views.Count(int64(f + 0.5)).Text
}

// besides returns the numbers of a tenant's overrides, blocks, list entries and grants that
// apply now.
func (w *pages) besides(ctx context.Context, t tenants.Tenant) ([]views.Beside, error) {
	now := w.Now()
	overrides, err := w.cfg.Exceptions.Overrides(ctx, t.ID, web.CountedExceptions)
	if err != nil {
		return nil, err
	}
	blocks, err := w.cfg.Exceptions.Blocks(ctx, t.ID, web.CountedExceptions)
	if err != nil {
		return nil, err
	}
	entries, err := w.cfg.Exceptions.Entries(ctx, t.ID, web.CountedExceptions)
	if err != nil {
		return nil, err
	}
	grants, err := w.cfg.Exceptions.Grants(ctx, t.ID, web.CountedExceptions)
	if err != nil {
		return nil, err
	}
	var ends [4][]time.Time
	for i := range grants {
		ends[3] = append(ends[3], grants[i].ExpiresAt)
	}
	for i := range overrides {
		ends[0] = append(ends[0], overrides[i].ExpiresAt)
	}
	for i := range entries {
		ends[1] = append(ends[1], entries[i].ExpiresAt)
	}
	for i := range blocks {
		ends[2] = append(ends[2], blocks[i].ExpiresAt)
	}
	var list []views.Beside
	for i, what := range []struct{ label, path, none string }{
		{"Overrides", "/overrides", "the numbers of the plan apply"},
		{"List entries", "/lists", "the lists are empty"},
		{"Blocks", "/blocks", "no key is blocked"},
		{"Grants", "/grants", "no limit is topped up"},
	} {
		n, next := inForce(ends[i], now)
		b := views.Beside{Label: what.label, URL: web.TenantURL(t, what.path), Count: views.Count(int64(n)), Text: what.none}
		switch {
		case len(ends[i]) > web.MaxCountedExceptions:
			b.Count, b.Text = views.Number{
				Text:  strconv.Itoa(web.MaxCountedExceptions) + "+",
				Exact: "more than " + strconv.Itoa(web.MaxCountedExceptions),
			}, "only the newest are counted"
			next = time.Time{} // not all exceptions were read, so the next end is unknown
		case n > 0:
			b.Text = "no end"
		}
		if !next.IsZero() {
			b.Next, b.HasNext = views.NewMoment(next, now), true
		}
		list = append(list, b)
	}
	return list, nil
}

// inForce returns how many exceptions have not ended, and when the next of them ends. If none
// of them has an end, next is zero.
func inForce(ends []time.Time, now time.Time) (n int, next time.Time) {
	for _, end := range ends {
		if end.IsZero() {
			n++
			continue
		}
		if !now.Before(end) {
			continue
		}
		if n++; next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return n, next
}

// tenantCSV is GET /tenants/{tenant}/usage.csv. The file has the counts of every policy for
// every step of the charts.
func (w *pages) tenantCSV(c echo.Context) error {
	ctx, t := c.Request().Context(), web.TenantOf(c)
	s := w.TimeRange(c)
	if s.Fault != "" {
		return problem.New(problem.Invalid, "%s", s.Fault)
	}
	d, err := w.PublishedDocument(ctx, t.Plan)
	if err != nil {
		return err
	}
	policies := make([]string, 0, len(d.Policies()))
	for _, p := range d.Policies() {
		policies = append(policies, p.Slug)
	}
	shown, err := w.overview(ctx, trafficQuery(s, t.Number, nil))
	if err != nil {
		return err
	}
	q := s.Query(t.Number)
	q.From, q.Step = shown.Traffic.From, shown.Traffic.Step
	_, step := grouped(shown.Traffic.Points, q.Step.Duration(), chartPoints)
	file, err := export.Usage(ctx, w.cfg.Analytics, t.Slug, q, step, policies, s.In(s.From).Location())
	if err != nil {
		return err
	}
	return file.Serve(c.Response(), w.Log().With("request_id", web.RequestID(c)))
}
