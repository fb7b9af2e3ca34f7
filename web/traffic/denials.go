package traffic

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
	"github.com/headgate/headgate/web/views"
)

const (
	denialsOnPage = 50
	denialParts   = 3 // attributes in a row
	// denialAttributes is how many attributes narrow a list at most.
	denialAttributes = 8
	// newsCounted is up to how many new ones a page that stands still counts.
	newsCounted = 100
	// denialsEvery is how often a live list asks whether anything came: with the
	// second that a node takes to flush, a refusal is there within two.
	denialsEvery = 500 * time.Millisecond
	// denialsAgain is when a live list is drawn without news: time went on.
	denialsAgain = 15 * time.Second
	keyPrefix    = "k." // of the parts of an address that name an attribute
)

// reasons of refusals, as people call them.
var reasons = []struct {
	reason enforcement.Reason
	words  views.ReasonWords
	status string
}{
	{enforcement.ReasonOverLimit, views.ReasonWords{Text: "Over the limit", Tone: "bad"}, "429"},
	{enforcement.ReasonCostExceedsQuota, views.ReasonWords{Text: "Costs too much", Tone: "bad"}, "429"},
	{enforcement.ReasonBlocked, views.ReasonWords{Text: "Blocked", Tone: "violet"}, "429"},
	{enforcement.ReasonDeniedByList, views.ReasonWords{Text: "On the deny list", Tone: "violet"}, "403"},
	{enforcement.ReasonMissingAttribute, views.ReasonWords{Text: "Attribute missing", Tone: "warn"}, "403"},
	{enforcement.ReasonNoPolicy, views.ReasonWords{Text: "No policy", Tone: ""}, "403"},
	{enforcement.ReasonTenantSuspended, views.ReasonWords{Text: "Tenant suspended", Tone: ""}, "403"},
	{enforcement.ReasonBatchRefused, views.ReasonWords{Text: "Refused with its batch", Tone: ""}, "429"},
	{enforcement.ReasonLimiterUnavailable, views.ReasonWords{Text: "Limiter away", Tone: "warn"}, "503"},
}

// reasonGroups are several reasons under one name.
var reasonGroups = []struct {
	name, text string
	reasons    []enforcement.Reason
}{
	{"limited", "Any limit (429)", []enforcement.Reason{enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota}},
	{"other", "Anything but limits", []enforcement.Reason{
		enforcement.ReasonBlocked, enforcement.ReasonDeniedByList, enforcement.ReasonMissingAttribute, enforcement.ReasonNoPolicy,
		enforcement.ReasonTenantSuspended, enforcement.ReasonBatchRefused, enforcement.ReasonLimiterUnavailable,
	}},
}

func reasonWords(r enforcement.Reason) (views.ReasonWords, string) {
	for _, known := range reasons {
		if known.reason == r {
			return known.words, known.status
		}
	}
	return views.ReasonWords{Text: string(r)}, "429"
}

// A denialsView is a list of refusals as its address says it.
type denialsView struct {
	span   web.TimeRange
	base   string // the page's path
	tenant tenants.Tenant
	filter metrics.RefusalFilter
	also   url.Values // what narrows it
	faults map[string]string
	paged  bool // older ones than the newest
}

// denialsOf reads an address. In a tenant's page the tenant is the path's,
// whatever the query says.
func (w *pages) denialsOf(c echo.Context) (denialsView, error) {
	q := c.QueryParams()
	v := denialsView{span: web.ParseTimeRange(q, w.Now()), base: "/denials", also: url.Values{}, faults: map[string]string{}}
	v.filter = metrics.RefusalFilter{From: v.span.From, Limit: denialsOnPage + 1}
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
	v.reason(q.Get("reason"))
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
		v.faults["tenant"] = "There is no tenant of this name."
	case err != nil:
		return err
	default:
		v.filter.Tenant = t.Number
		v.set("tenant", t.Slug)
	}
	return nil
}

func (v *denialsView) reason(name string) {
	if name == "" {
		return
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
	v.faults["reason"] = "There is no reason of this name."
}

// attributes reads those that narrow the list: k.user=u1, and what was typed as
// user=u1.
func (v *denialsView) attributes(q url.Values) {
	add := func(name, value string) {
		switch {
		case name == "" || value == "":
		case v.also.Get(keyPrefix+name) != "":
			if v.also.Get(keyPrefix+name) != value {
				v.faults["attribute"] = "The list is narrowed by another value of " + name + " already: take that away first."
			}
		case len(v.filter.Attributes) == denialAttributes:
			v.faults["attribute"] = fmt.Sprintf("At most %d attributes narrow the list.", denialAttributes)
		default:
			v.filter.Attributes = append(v.filter.Attributes, enforcement.Attribute{Name: name, Value: canonical(name, value)})
			v.set(keyPrefix+name, value)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(q)) {
		if name, is := strings.CutPrefix(part, keyPrefix); is {
			add(name, q.Get(part))
		}
	}
	typed := strings.TrimSpace(q.Get("attribute"))
	if typed == "" {
		return
	}
	name, value, both := strings.Cut(typed, "=")
	if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !both || name == "" || value == "" {
		v.faults["attribute"] = "Give a name and a value, as user=u1."
		return
	}
	add(name, value)
}

// canonical is an address as checks keep it, and a network in its one spelling.
func canonical(name, value string) string {
	if name == "ip" {
		if _, text, err := enforcement.ParseNetwork(value); err == nil {
			return text
		}
	}
	return value
}

// streams reports whether the view can be live.
func (v *denialsView) streams() bool { return v.span.Preset != "" && !v.paged && len(v.faults) == 0 }

func (w *pages) showDenials(c echo.Context) error {
	v, err := w.denialsOf(c)
	if err != nil {
		return err
	}
	find := views.FilterField{Name: "decision", Label: "Decision id", Value: strings.TrimSpace(c.QueryParam("decision"))}
	if find.Value != "" {
		if id, err := uuid.Parse(find.Value); err == nil {
			return c.Redirect(http.StatusSeeOther, v.base+"/"+id.String())
		}
		find.Error = "This is no decision id: it looks like 0190f5c4-7e1a-7b3c-8d2e-0123456789ab."
	}
	var rows []metrics.Refusal
	status := http.StatusOK
	if len(v.faults) > 0 {
		status = http.StatusUnprocessableEntity
	} else if rows, err = w.cfg.Analytics.Refusals(c.Request().Context(), v.filter); err != nil {
		return err
	}
	d := views.Denials{
		Title: "Denials", Lead: "The latest refusals and why. Each is kept for 24 hours.",
		Ranges: v.span.Picker(v.base, paused(v.span, v.also), v.streams()), Filters: w.denialFilters(c, &v), Find: find,
	}
	p := w.Page(c, d.Title)
	if v.tenant.ID != "" {
		p = w.TenantPage(c, d.Title)
		d.Tabs = w.TenantTabs(c, "/denials")
	}
	if len(rows) > denialsOnPage {
		rows = rows[:denialsOnPage]
		d.OlderURL = v.span.Address(v.base, with(v.also, "before", uuid.UUID(rows[len(rows)-1].ID).String()))
	}
	if v.paged {
		d.NewestURL = v.span.Address(v.base, v.also)
	}
	if v.streams() {
		stream := v.also
		if d.Event = "denials"; !v.span.Live {
			stream, d.Event = with(stream, "live", "0"), "news"
			if len(rows) > 0 {
				stream = with(stream, "after", uuid.UUID(rows[0].ID).String())
			}
		}
		p.Live = v.span.Address(v.base+"/live", stream)
	}
	if d.List = w.denialList(c, &v, rows); len(v.faults) > 0 {
		d.List.Empty = *unfiltered()
	}
	return w.Render(c, status, views.DenialsPage(p, d))
}

// liveDenials sends the list again when refusals came; to a page that stands
// still, how many.
func (w *pages) liveDenials(c echo.Context) error {
	params := c.QueryParams()
	first, err := w.denialsOf(c)
	if err != nil {
		return err
	}
	if len(first.faults) > 0 {
		return errNoFilter
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

// firstAt is the lowest decision id of an instant.
func firstAt(t time.Time) (id [16]byte) {
	ms := uint64(t.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// drawDenials draws the list of a view, whose time goes on while what narrows it
// stays: also when its tenant is deleted meanwhile.
func (w *pages) drawDenials(c echo.Context, v denialsView) func(context.Context) ([]web.Fragment, error) {
	params := c.QueryParams()
	var mark metrics.Mark
	var drawn time.Time
	return func(ctx context.Context) ([]web.Fragment, error) {
		now, err := w.cfg.Analytics.Mark(ctx)
		if err != nil || now == mark && time.Since(drawn) < denialsAgain {
			return nil, err
		}
		v.span = web.ParseTimeRange(params, w.Now())
		v.filter.From = v.span.From
		rows, err := w.cfg.Analytics.Refusals(ctx, v.filter)
		if err != nil {
			return nil, err
		}
		mark, drawn = now, time.Now()
		return []web.Fragment{{Event: "denials", Body: views.DenialRows(w.denialList(c, &v, rows[:min(denialsOnPage, len(rows))]))}}, nil
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
			v.span.Address(v.base, v.also))}}, nil
	}
}

func (w *pages) denialFilters(c echo.Context, v *denialsView) views.Filters {
	f := views.Filters{Action: v.base, ClearURL: v.span.Address(v.base, nil)}
	options := []views.Option{{Value: "", Label: "Any"}}
	for _, g := range reasonGroups {
		options = append(options, views.Option{Value: g.name, Label: g.text})
	}
	for _, r := range reasons {
		options = append(options, views.Option{Value: string(r.reason), Label: r.words.Text})
	}
	fields := []views.FilterField{
		{Name: "tenant", Label: "Tenant", Placeholder: "acme"},
		{Name: "reason", Label: "Reason", Options: options},
		{Name: "policy", Label: "Policy", Placeholder: "login-per-ip"},
		{Name: "route", Label: "Route", Placeholder: "/v1/login"},
		{Name: "attribute", Label: "Attribute", Placeholder: "user=u1"},
		{Name: "degraded", Label: "Degraded only", Check: true},
	}
	if v.tenant.ID != "" {
		fields = fields[1:]
	}
	typed := c.QueryParams()
	for _, field := range fields {
		field.Value, field.Error = v.also.Get(field.Name), v.faults[field.Name]
		if field.Error != "" {
			field.Value = typed.Get(field.Name)
		} else if field.Value != "" {
			chip := views.Chip{Name: field.Label, Value: field.Value, RemoveURL: v.span.Address(v.base, with(v.also, field.Name, ""))}
			for _, o := range field.Options {
				if o.Value == field.Value {
					chip.Value = o.Label
				}
			}
			if field.Check {
				chip.Name, chip.Value = field.Label, "yes"
			}
			f.Chips = append(f.Chips, chip)
		}
		f.Fields = append(f.Fields, field)
	}
	for _, part := range slices.Sorted(maps.Keys(v.also)) {
		if name, is := strings.CutPrefix(part, keyPrefix); is {
			f.Chips = append(f.Chips, views.Chip{Name: name, Value: v.also.Get(part), RemoveURL: v.span.Address(v.base, with(v.also, part, ""))})
			f.Hidden = append(f.Hidden, views.Hidden{Name: part, Value: v.also.Get(part)})
		}
	}
	for name, values := range v.span.Values() {
		f.Hidden = append(f.Hidden, views.Hidden{Name: name, Value: values[0]})
	}
	return f
}

func (w *pages) denialList(c echo.Context, v *denialsView, rows []metrics.Refusal) views.DenialList {
	l := views.DenialList{Tenants: v.tenant.ID == "" && v.also.Get("tenant") == "", Empty: views.Empty{
		Title: "Nothing was refused in this time",
		Text:  "Refusals are here within two seconds and are kept for 24 hours, up to 100 a second and node.",
	}}
	if len(v.also) > 0 {
		l.Empty.Title = "No refusal fits these filters in this time"
	}
	for i := range rows {
		l.Rows = append(l.Rows, w.denialRow(v, &rows[i]))
	}
	l.Summary = count(int64(len(rows)), "refusal", "refusals") + ", the newest first."
	if len(rows) < denialsOnPage && (len(v.filter.Attributes) > 0 || v.filter.Degraded) {
		l.Summary += " For attributes and degraded ones, at most the latest 5,000 refusals are looked through."
		l.Empty.Text += " For attributes and degraded ones, at most the latest 5,000 are looked through."
	}
	return l
}

func (w *pages) denialRow(v *denialsView, r *metrics.Refusal) views.Denial {
	id := uuid.UUID(r.ID).String()
	words, _ := reasonWords(r.Reason)
	d := views.Denial{
		ID: id, URL: v.base + "/" + id, Time: views.NewStamp(r.At, w.Now()), Tenant: r.TenantSlug, Method: r.Method, Path: r.Path,
		Policy: r.Policy, Limit: limitName(r), Reason: words, Redacted: r.Redacted, RetryAfter: retryNumber(r), Degraded: r.Degraded,
	}
	if w.slugOf(r.Tenant) != "" {
		d.TenantURL = v.span.Address("/tenants/"+w.slugOf(r.Tenant), nil)
	}
	d.Parts = w.keyFirst(r)
	if len(d.Parts) > denialParts {
		d.MoreParts, d.Parts = len(d.Parts)-denialParts, d.Parts[:denialParts]
	}
	return d
}

// limitName is the limit that refused, when its policy has several.
func limitName(r *metrics.Refusal) string {
	n := 0
	for i := range r.Limits {
		if r.Limits[i].Policy == r.Policy {
			n++
		}
	}
	if n < 2 {
		return ""
	}
	return r.Limit
}

func retryNumber(r *metrics.Refusal) views.Number {
	switch {
	case r.RetryAfterMS == enforcement.Never:
		return views.Number{Text: "never", Exact: "waiting does not help"}
	case r.RetryAfterMS == 0:
		return views.Number{Text: "–", Exact: "not told"}
	}
	return millis(r.RetryAfterMS)
}

// countedBy are the attributes that the refusing policy counts by now; none when
// it is not known any more.
func (w *pages) countedBy(r *metrics.Refusal) (names []string, known bool) {
	subject, ok := w.cfg.Snapshot().SubjectByNumber(r.Tenant)
	if !ok || subject.Plan == nil || r.Policy == "" {
		return nil, false
	}
	rule, ok := subject.Plan.Rule(r.Policy)
	if !ok {
		return nil, false
	}
	for _, name := range rule.CountBy {
		if name == web.PrefixAttribute {
			name = "ip"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, true
}

// keyFirst are the attributes of a refused request, first those that the policy
// counts by.
func (w *pages) keyFirst(r *metrics.Refusal) []views.KeyPart {
	names, _ := w.countedBy(r)
	parts := make([]views.KeyPart, 0, len(r.Attributes))
	for _, name := range names {
		at := slices.IndexFunc(r.Attributes, func(a enforcement.Attribute) bool { return a.Name == name })
		if at < 0 {
			parts = append(parts, views.KeyPart{Name: name, Missing: true})
			continue
		}
		parts = append(parts, views.KeyPart{Name: name, Value: r.Attributes[at].Value})
	}
	for _, a := range r.Attributes {
		if !slices.Contains(names, a.Name) {
			parts = append(parts, views.KeyPart{Name: a.Name, Value: a.Value})
		}
	}
	return parts
}

// denialSummary names a refusal in a title.
func denialSummary(r *metrics.Refusal) string {
	words, status := reasonWords(r.Reason)
	return fmt.Sprintf("%s %s", status, words.Text)
}
