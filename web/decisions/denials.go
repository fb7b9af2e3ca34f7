package decisions

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/views"
)

const (
	denialsOnPage = 50
	denialParts   = 3 // attributes that a row shows
	// denialAttributes is the maximum number of attributes in the filter.
	denialAttributes = 8
	// newsCounted is the highest number of new denials that a paused page can show.
	newsCounted = 100
	// denialsEvery is the interval at which a live list checks for new denials. Nodes write
	// denials every second, so a denial appears on the page within two seconds.
	denialsEvery = 500 * time.Millisecond
	// denialsAgain is the interval at which a live list is rendered if there are no new denials.
	// The start of its time range moves, so old denials disappear from the list.
	denialsAgain = 15 * time.Second
	// groupsEvery is the minimum time between two updates of a live list of groups. An update
	// can read up to denialsGrouped denials.
	groupsEvery = 2 * time.Second
	// denialsKept is how long Headgate keeps decisions.
	denialsKept = web.Day
)

// reasons lists the reasons of denials, each with its text and the HTTP status of the response.
var reasons = []struct {
	reason enforcement.Reason
	words  views.ReasonWords
	status string
}{
	{enforcement.ReasonOverLimit, views.ReasonWords{Text: "Over the limit", Tone: "bad"}, "429"},
	{enforcement.ReasonCostExceedsQuota, views.ReasonWords{Text: "Cost above the limit", Tone: "bad"}, "429"},
	{enforcement.ReasonBlocked, views.ReasonWords{Text: "Blocked", Tone: "violet"}, "429"},
	{enforcement.ReasonDeniedByList, views.ReasonWords{Text: "On the deny list", Tone: "violet"}, "403"},
	{enforcement.ReasonMissingAttribute, views.ReasonWords{Text: "Attribute missing", Tone: "warn"}, "403"},
	{enforcement.ReasonNoPolicy, views.ReasonWords{Text: "No policy", Tone: ""}, "403"},
	{enforcement.ReasonTenantSuspended, views.ReasonWords{Text: "Tenant suspended", Tone: ""}, "403"},
	{enforcement.ReasonBatchRefused, views.ReasonWords{Text: "Denied with its batch", Tone: ""}, "429"},
	{enforcement.ReasonLimiterUnavailable, views.ReasonWords{Text: "Limiter unavailable", Tone: "warn"}, "503"},
}

// An outcomeWord is one choice of the filter by outcome. thing and things are the English
// words, in singular and plural, for the decisions that the choice selects, such as denial and
// denials.
type outcomeWord struct {
	outcome       metrics.Outcome
	label, title  string
	thing, things string
}

var outcomes = []outcomeWord{
	{metrics.OutcomeDenied, "Denied", "Denials", "denial", "denials"},
	{metrics.OutcomeAllowed, "Allowed (sample)", "Allowed requests", "allowed request", "allowed requests"},
	{metrics.OutcomeAny, "Denied and allowed", "Decisions", "decision", "decisions"},
}

// allowedReasons are the reasons of allowed requests.
var allowedReasons = []struct {
	reason enforcement.Reason
	words  views.ReasonWords
}{
	{enforcement.ReasonOK, views.ReasonWords{Text: "Allowed", Tone: "good"}},
	{enforcement.ReasonAllowedByList, views.ReasonWords{Text: "On the allow list", Tone: "good"}},
	{enforcement.ReasonNoPolicy, views.ReasonWords{Text: "Allowed, no policy", Tone: "good"}},
}

// reasonGroups lists groups of reasons that the filter offers.
var reasonGroups = []struct {
	name, text string
	reasons    []enforcement.Reason
}{
	{"limited", "Any limit (429)", []enforcement.Reason{enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota}},
	{"other", "Other reasons", []enforcement.Reason{
		enforcement.ReasonBlocked, enforcement.ReasonDeniedByList, enforcement.ReasonMissingAttribute, enforcement.ReasonNoPolicy,
		enforcement.ReasonTenantSuspended, enforcement.ReasonBatchRefused, enforcement.ReasonLimiterUnavailable,
	}},
}

// outcomeWords describes the reason of a decision, and returns the HTTP status with which the
// API answered it.
func outcomeWords(r *metrics.Refusal) (views.ReasonWords, string) {
	if !r.Allowed {
		return reasonWords(r.Reason)
	}
	for _, known := range allowedReasons {
		if known.reason == r.Reason {
			return known.words, "200"
		}
	}
	return views.ReasonWords{Text: string(r.Reason), Tone: "good"}, "200"
}

func reasonWords(r enforcement.Reason) (views.ReasonWords, string) {
	for _, known := range reasons {
		if known.reason == r {
			return known.words, known.status
		}
	}
	return views.ReasonWords{Text: string(r)}, "429"
}

// A denialsView is a list of denials, with the filters from the URL of the page.
type denialsView struct {
	span   web.TimeRange
	base   string // path of the page
	tenant tenants.Tenant
	filter metrics.RefusalFilter
	also   url.Values // the filters, as query parameters
	faults map[string]string
	paged  bool   // true for pages of older denials, which do not start with the newest denial
	group  string // the name of the grouping; "" if the page lists single denials
	of     int    // index in outcomes
}

// address returns the URL of the page with its time range and the filters in also.
func (v *denialsView) address(also url.Values) string { return v.span.Address(v.base, also) }

// denialsOf reads the filters of a list of denials from the URL. On a page of a tenant, it
// ignores the query parameter tenant.
func (w *pages) denialsOf(c echo.Context) (denialsView, error) {
	q := c.QueryParams()
	v := denialsView{
		span: w.TimeRange(c).AtMost(denialsKept, w.Now()), base: "/denials", also: url.Values{}, faults: map[string]string{}, group: groupName(q),
	}
	v.filter = metrics.RefusalFilter{From: v.span.From, Limit: denialsOnPage + 1}
	if v.group != "" {
		v.filter.Limit = denialsGrouped
		v.set("group", v.group)
	}
	if v.span.Preset == "" {
		v.filter.To = v.span.To
	}
	if own := web.TenantOf(c); own.ID != "" {
		v.tenant, v.base = own, "/tenants/"+own.Slug+"/denials"
		v.filter.Tenant = own.Number
	} else if err := w.denialsTenant(c, &v, strings.TrimSpace(q.Get("tenant"))); err != nil {
		return v, err
	}
	v.filter.Policy, v.filter.Route = strings.TrimSpace(q.Get("policy")), strings.TrimSpace(q.Get("route"))
	v.set("policy", v.filter.Policy)
	v.set("route", v.filter.Route)
	if q.Get("degraded") == "1" {
		v.filter.Degraded = true
		v.set("degraded", "1")
	}
	v.outcome(q.Get("outcome"))
	v.reason(q.Get("reason"))
	if name := q.Get("wait"); name != "" {
		if wait, known := requests.WaitNamed(name); known {
			v.filter.RetryAfter = &wait
			v.set("wait", name)
		} else {
			v.faults["wait"] = requests.NotApplied("No retry time has this name")
		}
	}
	v.attributes(q)
	if raw := q.Get("before"); raw != "" {
		before, err := uuid.Parse(raw)
		if v.paged = err == nil; v.paged {
			v.filter.Before = before
		}
	}
	return v, nil
}

func (v *denialsView) set(name, value string) {
	if value != "" {
		v.also.Set(name, value)
	}
}

func (w *pages) denialsTenant(c echo.Context, v *denialsView, slug string) error {
	if slug == "" {
		return nil
	}
	t, err := w.cfg.Tenants.Tenant(c.Request().Context(), slug)
	switch {
	case problem.Is(err, problem.NotFound):
		v.faults["tenant"] = requests.NotApplied("No tenant has the slug " + slug)
	case err != nil:
		return err
	default:
		v.filter.Tenant = t.Number
		v.set("tenant", t.Slug)
	}
	return nil
}

// outcome sets whether the page lists denials, allowed requests or both. The default is
// denials, for which the URL has no parameter.
func (v *denialsView) outcome(name string) {
	v.of = slices.IndexFunc(outcomes, func(o outcomeWord) bool { return string(o.outcome) == name })
	if v.of < 0 {
		v.of = 0
		if name != "" {
			v.faults["outcome"] = requests.NotApplied("No outcome has this name")
		}
	}
	if v.of > 0 {
		v.filter.Outcome = outcomes[v.of].outcome
		v.set("outcome", name)
	}
}

func (v *denialsView) reason(name string) {
	if name == "" {
		return
	}
	for _, known := range allowedReasons {
		if string(known.reason) == name && v.of > 0 {
			v.filter.Reason = known.reason
			v.set("reason", name)
			return
		}
	}
	for _, g := range reasonGroups {
		if g.name == name {
			v.filter.Reasons = g.reasons
			v.set("reason", name)
			return
		}
	}
	for _, known := range reasons {
		if string(known.reason) == name {
			v.filter.Reason = known.reason
			v.set("reason", name)
			return
		}
	}
	v.faults["reason"] = requests.NotApplied("No reason has this name")
}

// attributes reads the filters for attributes from the URL. Links have the form k.user=u1. The
// form sends the text user=u1.
func (v *denialsView) attributes(q url.Values) {
	add := func(name, value string) {
		switch {
		case name == "" || value == "":
		case v.also.Get(web.KeyFieldPrefix+name) != "":
			if v.also.Get(web.KeyFieldPrefix+name) != value {
				v.faults["attribute"] = "The list is already filtered by another value of " + name + ". Remove that filter first."
			}
		case len(v.filter.Attributes) == denialAttributes:
			v.faults["attribute"] = fmt.Sprintf("The list can be filtered by at most %d attributes.", denialAttributes)
		default:
			v.filter.Attributes = append(v.filter.Attributes, enforcement.Attribute{Name: name, Value: canonical(name, value)})
			v.set(web.KeyFieldPrefix+name, value)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(q)) {
		if name, is := strings.CutPrefix(part, web.KeyFieldPrefix); is {
			add(name, q.Get(part))
		}
	}
	typed := strings.TrimSpace(q.Get("attribute"))
	if typed == "" {
		return
	}
	name, value, both := strings.Cut(typed, "=")
	if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !both || name == "" || value == "" {
		v.faults["attribute"] = requests.NotApplied("Enter a name and a value, like user=u1")
		return
	}
	add(name, value)
}

// canonical returns an IP address or a network in its canonical spelling. It returns other
// values unchanged.
func canonical(name, value string) string {
	if name == "ip" {
		if _, text, err := enforcement.ParseNetwork(value); err == nil {
			return text
		}
	}
	return value
}

// streams reports whether the list can have live updates: its time range must end now, and it
// must start with the newest denial.
func (v *denialsView) streams() bool { return v.span.Preset != "" && !v.paged }

// denialsFor reads the denials of a list. If a filter names a policy or a route that no plan
// and no denial has, denialsFor adds an error message and ignores this filter.
func (w *pages) denialsFor(ctx context.Context, v *denialsView) ([]metrics.Refusal, error) {
	rows, err := w.cfg.Analytics.Refusals(ctx, v.filter)
	if err != nil || len(rows) > 0 || v.paged {
		return rows, err
	}
	if !w.names.DropUnknown(v.filter.Tenant, v.also, v.faults) {
		return rows, nil
	}
	v.filter.Policy, v.filter.Route = v.also.Get("policy"), v.also.Get("route")
	return w.cfg.Analytics.Refusals(ctx, v.filter)
}

func (w *pages) showDenials(c echo.Context) error {
	v, err := w.denialsOf(c)
	if err != nil {
		return err
	}
	find := views.FilterField{Name: "decision", Label: "Decision ID", Value: strings.TrimSpace(c.QueryParam("decision"))}
	if find.Value != "" {
		if id, err := uuid.Parse(find.Value); err == nil {
			return c.Redirect(http.StatusSeeOther, v.base+"/"+id.String())
		}
		find.Error = "This is not a decision ID. An ID looks like 0190f5c4-7e1a-7b3c-8d2e-0123456789ab."
	}
	rows, err := w.denialsFor(c.Request().Context(), &v)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if len(v.faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	d := views.Denials{
		Title: outcomes[v.of].title, Lead: "The latest " + outcomes[v.of].things + " with their reasons. Headgate keeps them for 24 hours.",
		Ranges: v.span.Picker(v.base, requests.Paused(v.span, v.also), v.streams()), Find: find, Groups: v.groupLinks(), ShareURL: w.share.URL(c),
	}
	if d.Filters, err = w.denialFilters(c, &v); err != nil {
		return err
	}
	if d.Filters.Saved, err = w.saved.Bar(c, saved.Denials); err != nil {
		return err
	}
	d.Notice = web.Notice(c)
	p := w.Page(c, d.Title)
	if v.tenant.ID != "" {
		p = w.TenantPage(c, d.Title)
		d.Tabs = w.TenantTabs(c, "/denials")
	}
	if v.group == "" && len(rows) > denialsOnPage {
		rows = rows[:denialsOnPage]
		d.OlderURL = v.address(web.With(v.also, "before", uuid.UUID(rows[len(rows)-1].ID).String()))
	}
	if v.paged {
		d.NewestURL = v.address(v.also)
	}
	if v.streams() {
		stream := v.also
		if d.Event = "denials"; !v.span.Live {
			stream, d.Event = web.With(stream, "live", "0"), "news"
			if len(rows) > 0 {
				stream = web.With(stream, "after", uuid.UUID(rows[0].ID).String())
			}
		}
		p.Live = v.span.Address(v.base+"/live", stream)
	}
	d.List = w.denialList(c, &v, rows)
	return w.Render(c, status, views.DenialsPage(p, d))
}

// liveDenials streams updates of a list of denials. A live page gets the new list. A page whose
// updates are paused gets only the number of new denials.
func (w *pages) liveDenials(c echo.Context) error {
	params := c.QueryParams()
	first, err := w.denialsOf(c)
	if err != nil {
		return err
	}
	if len(first.faults) > 0 {
		return requests.ErrNoFilter
	}
	draw := w.drawDenials(c, first)
	if params.Get("live") == "0" {
		after, err := uuid.Parse(params.Get("after"))
		if err != nil {
			after = uuid.UUID(firstAt(w.Now()))
		}
		draw = w.drawNews(first, after)
	}
	return w.Stream(c, denialsEvery, draw)
}

// firstAt returns the lowest ID that a decision at the time t can have. A decision ID starts
// with its time.
func firstAt(t time.Time) (id [16]byte) {
	ms := uint64(t.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// drawDenials returns a function that renders the updates of a live list. The time range moves
// with each update. The filter by tenant stays even if the tenant is deleted in the meantime.
func (w *pages) drawDenials(c echo.Context, v denialsView) func(context.Context) ([]web.Fragment, error) {
	params, zone := c.QueryParams(), v.span.Zone
	var mark metrics.Mark
	var drawn time.Time
	return func(ctx context.Context) ([]web.Fragment, error) {
		now, err := w.cfg.Analytics.Mark(ctx)
		if err != nil || now == mark && time.Since(drawn) < denialsAgain || v.group != "" && time.Since(drawn) < groupsEvery {
			return nil, err
		}
		v.span = web.ParseTimeRange(params, w.Now(), zone).AtMost(denialsKept, w.Now())
		v.filter.From = v.span.From
		rows, err := w.cfg.Analytics.Refusals(ctx, v.filter)
		if err != nil {
			return nil, err
		}
		mark, drawn = now, time.Now()
		if v.group == "" {
			rows = rows[:min(denialsOnPage, len(rows))]
		}
		return []web.Fragment{{Event: "denials", Body: views.DenialRows(w.denialList(c, &v, rows))}}, nil
	}
}

func (w *pages) drawNews(v denialsView, after uuid.UUID) func(context.Context) ([]web.Fragment, error) {
	f := v.filter
	f.After, f.Limit = after, newsCounted+1
	var mark metrics.Mark
	known := false
	return func(ctx context.Context) ([]web.Fragment, error) {
		now, err := w.cfg.Analytics.Mark(ctx)
		if err != nil || known && now == mark {
			return nil, err
		}
		rows, err := w.cfg.Analytics.Refusals(ctx, f)
		if err != nil {
			return nil, err
		}
		mark, known = now, true
		return []web.Fragment{{Event: "news", Body: views.DenialNews(min(newsCounted, len(rows)), len(rows) > newsCounted,
			v.address(v.also))}}, nil
	}
}

func (w *pages) denialFilters(c echo.Context, v *denialsView) (views.Filters, error) {
	options := []views.Option{{Value: "", Label: "Any"}}
	for _, g := range reasonGroups {
		options = append(options, views.Option{Value: g.name, Label: g.text})
	}
	for _, r := range reasons {
		options = append(options, views.Option{Value: string(r.reason), Label: r.words.Text})
	}
	if v.of > 0 {
		for _, r := range allowedReasons {
			options = append(options, views.Option{Value: string(r.reason), Label: r.words.Text})
		}
	}
	chosen := []views.Option{}
	for i, o := range outcomes {
		value := string(o.outcome)
		if i == 0 {
			value = "" // the default
		}
		chosen = append(chosen, views.Option{Value: value, Label: o.label})
	}
	words := w.names.Of(v.filter.Tenant)
	for i := range words.Attributes {
		words.Attributes[i] += "="
	}
	fields := []views.FilterField{
		{Name: "outcome", Label: "Outcome", Options: chosen},
		{Name: "reason", Label: "Reason", Options: options},
		{Name: "policy", Label: "Policy", Placeholder: "login-per-ip", List: words.Policies},
		{Name: "route", Label: "Route", Placeholder: "/v1/login", List: words.Routes},
		{Name: "wait", Label: "Retry after", Options: waitOptions()},
		{Name: "attribute", Label: "Attribute", Placeholder: "user=u1", List: words.Attributes},
		{Name: "degraded", Label: "Degraded only", Check: true},
	}
	if v.tenant.ID == "" {
		slugs, err := w.names.TenantSlugs(c.Request().Context())
		if err != nil {
			return views.Filters{}, err
		}
		fields = append([]views.FilterField{{Name: "tenant", Label: "Tenant", Placeholder: "acme", List: slugs}}, fields...)
	}
	address := func(name, value string) string { return v.address(web.With(v.also, name, value)) }
	f := web.Filters(c, v.base, fields, v.faults, v.also.Get, address)
	f.ClearURL = v.address(url.Values{"group": {v.group}})
	if v.group != "" {
		f.Hidden = append(f.Hidden, views.Hidden{Name: "group", Value: v.group})
	}
	for _, part := range slices.Sorted(maps.Keys(v.also)) {
		if name, is := strings.CutPrefix(part, web.KeyFieldPrefix); is {
			f.Chips = append(f.Chips, views.Chip{Name: name, Value: v.also.Get(part), RemoveURL: address(part, "")})
			f.Hidden = append(f.Hidden, views.Hidden{Name: part, Value: v.also.Get(part)})
		}
	}
	f.Hidden = append(f.Hidden, v.span.Hidden()...)
	return f, nil
}

// waitOptions returns the choices of the filter by retry time.
func waitOptions() []views.Option {
	list := []views.Option{{Label: "Any"}}
	for _, wait := range requests.Waits {
		list = append(list, views.Option{Value: wait.Name, Label: wait.Label})
	}
	return append(list, views.Option{Value: requests.NeverWait, Label: "waiting does not help"})
}
