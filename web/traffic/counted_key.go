package traffic

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// refusalsOfKey is how many refusals the page of a key has, and looksThrough how
// many of its policy are looked through for them.
const (
	refusalsOfKey = 20
	looksThrough  = 200
)

// ---- one counted key

// namedKeyOf reads the key of the page: what is told by k.<name>, of ip/64 also
// by that name.
func namedKeyOf(q url.Values, p plans.Policy) map[string]string {
	key := web.KeyFromForm(q, p)
	if value := q.Get(web.KeyFieldPrefix + web.PrefixAttribute); value != "" && key["ip"] == "" &&
		slices.Contains(p.CountBy, web.PrefixAttribute) {
		key["ip"] = value
	}
	return key
}

// countedKey is GET /tenants/{tenant}/usage/{policy}?k.<name>=<value>.
func (w *pages) countedKey(c echo.Context) error {
	ctx, t := c.Request().Context(), web.TenantOf(c)
	list, err := w.Policies(c)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(list, c.Param("policy"))
	if !known {
		return web.ErrNoPage
	}
	key := namedKeyOf(c.QueryParams(), p)
	u, err := w.cfg.Usage.Key(ctx, t.ID, p.Slug, key)
	if err != nil && !inPlace(err) {
		return err
	}
	v := views.CountedKey{
		Head: w.TenantHead(c, ""), Notice: web.Notice(c), Policy: p.Slug, Applies: web.AppliesWords(p), Left: w.leftOf(t, u, err),
	}
	parts := partsOf(key, p)
	if len(u.Policies) > 0 && len(u.Policies[0].Keys) > 0 {
		k := &u.Policies[0].Keys[0]
		parts, key = k.Key, k.Attributes()
		v.Left.Policies[0].Whole, v.Left.Policies[0].Note, v.Left.Policies[0].Pace = true, "", ""
	}
	v.Words = web.KeyWords(key, p.CountBy)
	if web.MayInTenant(c, accounts.ExceptionsWrite) {
		v.Actions = exceptionLinks(t, p, key)
	}
	also := web.KeyQuery(key)
	path := web.TenantURL(t, "/usage/") + url.PathEscape(p.Slug)
	s := web.ParseTimeRange(c.QueryParams(), w.Now())
	v.Ranges = s.Picker(path, also, false)
	if err := w.keyChart(ctx, &v, t, p, parts, s, path); err != nil {
		return err
	}
	if err := w.keyRefusals(ctx, &v, t, p, parts, s); err != nil {
		return err
	}
	q := web.KeyQuery(key)
	q.Set("policy", p.Slug)
	v.MoreURL = web.AppendQuery(s.Address(web.TenantURL(t, "/denials"), nil), q)
	v.Curl = w.keyCurl(c, p, key)
	page := w.TenantPage(c, v.Words)
	page.Charts = v.HasChart
	return w.Render(c, http.StatusOK, views.CountedKeyPage(page, v))
}

// partsOf is a key in the order of its policy.
func partsOf(key map[string]string, p plans.Policy) []enforcement.KeyPart {
	var parts []enforcement.KeyPart
	for _, by := range p.CountBy {
		value, sent := key[web.KeyAttributes([]string{by})[0]]
		parts = append(parts, enforcement.KeyPart{Name: by, Value: value, Missing: !sent})
	}
	return parts
}

// exceptionLinks are the forms that set exceptions for a key, filled in.
func exceptionLinks(t tenants.Tenant, p plans.Policy, key map[string]string) []views.Link {
	of := web.KeyQuery(key)
	of.Set("policy", p.Slug)
	override, entry := url.Values{"policy": {p.Slug}}, url.Values{"list": {"allow"}}
	for _, name := range web.KeyAttributes(p.CountBy) {
		if value, sent := key[name]; sent {
			override.Set("attribute", name)
			entry.Set("attribute", name)
			entry.Set("value", value)
			if strings.Contains(value, "/") && name == "ip" || slices.Contains(p.CountBy, web.PrefixAttribute) && name == "ip" &&
				strings.Contains(value, ":") {
				override.Set("prefix", networkOf(value))
				entry.Set("value", networkOf(value))
			} else {
				override.Set("value", value)
			}
			break
		}
	}
	links := []views.Link{
		{Text: "Override", URL: web.AppendQuery(web.TenantURL(t, "/overrides/new"), override)},
		{Text: "Reset", URL: web.AppendQuery(web.TenantURL(t, "/reset"), of)},
		{Text: "Block", URL: web.AppendQuery(web.TenantURL(t, "/blocks/new"), of)},
	}
	if entry.Has("value") {
		links = append(links, views.Link{Text: "Allow list", URL: web.AppendQuery(web.TenantURL(t, "/lists/new"), entry)})
	}
	return links
}

// networkOf is the /64 of an IPv6 address, where addresses are counted by these.
func networkOf(value string) string {
	if n, err := netip.ParsePrefix(value); err == nil {
		return n.Masked().String()
	}
	if a, err := netip.ParseAddr(value); err == nil && a.Is6() {
		n, _ := a.Prefix(64) // an error only when longer than the address
		return n.String()
	}
	return value
}

// keyChart draws what a key used.
func (w *pages) keyChart(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, parts []enforcement.KeyPart,
	s web.TimeRange, path string,
) error {
	if len(p.CountBy) == 0 {
		return w.wholeChart(ctx, v, t, p, s, path)
	}
	top := metrics.TopKey{Tenant: t.Number, Policy: p.Slug}
	for _, part := range parts {
		top.Names, top.Values, top.Missing = append(top.Names, part.Name), append(top.Values, part.Value), append(top.Missing, part.Missing)
	}
	if t.RedactValues {
		v.ChartNote = "Values are not kept for this tenant, so what one key used is not known over time."
		return nil
	}
	q := s.Query(t.Number)
	q.Policy = p.Slug
	allowed, err := w.cfg.Analytics.Key(ctx, q, top, metrics.AllowedKeys)
	if err != nil {
		return err
	}
	limited, err := w.cfg.Analytics.Key(ctx, q, top, metrics.LimitedKeys)
	if err != nil {
		return err
	}
	points := make([]views.ChartPoint, len(allowed.Points))
	for i, a := range allowed.Points {
		points[i] = views.ChartPoint{At: a.At, Values: []float64{float64(a.Count), 0}}
		if i < len(limited.Points) {
			points[i].Values[1] = float64(limited.Points[i].Count)
		}
	}
	v.Chart, v.HasChart = usedChart(allowed.Step.Duration(), points, path, attributesIn(parts)), true
	v.Chart.Summary = "Allowed " + betweenWords(allowed.Count, allowed.Error) + ", refused by a limit or a block " +
		betweenWords(limited.Count, limited.Error) + "."
	v.ChartNote = "Only the busiest keys are kept for each minute: where it was not among them, it may have had a few that are not shown."
	return nil
}

// attributesIn is a key as addresses have it.
func attributesIn(parts []enforcement.KeyPart) map[string]string {
	k := usage.KeyUsage{Key: parts}
	return k.Attributes()
}

func betweenWords(count, wrong int64) string {
	if wrong > 0 {
		return views.Count(count-wrong).Exact + " to " + views.Count(count).Exact + " times"
	}
	if count == 1 {
		return "once"
	}
	return views.Count(count).Exact + " times"
}

// wholeChart draws what a policy used that counts the whole tenant.
func (w *pages) wholeChart(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, s web.TimeRange, path string) error {
	q := s.Query(t.Number)
	q.Policy = p.Slug
	traffic, err := w.cfg.Analytics.Traffic(ctx, q)
	if err != nil {
		return err
	}
	points := make([]views.ChartPoint, len(traffic.Points))
	for i := range traffic.Points {
		points[i] = views.ChartPoint{
			At:     traffic.Points[i].At,
			Values: []float64{float64(traffic.Points[i].Allowed()), float64(traffic.Points[i].Limited())},
		}
	}
	v.Chart, v.HasChart = usedChart(traffic.Step.Duration(), points, path, nil), true
	v.Chart.Summary = "Allowed " + betweenWords(traffic.Total.Allowed(), 0) + ", refused by its limits " +
		betweenWords(traffic.Total.Limited(), 0) + "."
	return nil
}

func usedChart(step time.Duration, points []views.ChartPoint, path string, key map[string]string) views.Chart {
	return views.Chart{
		ID: "used", Title: "Requests over time", Kind: "area", Step: step, Points: points, Zoom: web.AppendQuery(path, web.KeyQuery(key)),
		Series: []views.Series{{Name: "Allowed", Color: "good"}, {Name: "Refused", Color: "bad"}},
	}
}

// keyRefusals are the recent refusals of a key that its policy is behind.
func (w *pages) keyRefusals(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, parts []enforcement.KeyPart,
	s web.TimeRange,
) error {
	if t.RedactValues && len(parts) > 0 {
		v.RefusalsNote = "Values are not kept for this tenant, so nobody knows which refusals are of this key."
		return nil
	}
	f := metrics.RefusalFilter{Tenant: t.Number, Policy: p.Slug, From: s.From, To: s.To, Limit: looksThrough}
	for _, part := range parts {
		if !part.Missing && part.Name != web.PrefixAttribute {
			f.Attributes = append(f.Attributes, enforcement.Attribute{Name: part.Name, Value: part.Value})
		}
	}
	list, err := w.cfg.Analytics.Refusals(ctx, f)
	if err != nil {
		return err
	}
	v.RefusalsNote = "No refusal of this key by this policy is kept of this time. Refusals are kept for a day."
	for i := range list {
		if !ofKey(&list[i], parts) {
			continue
		}
		if len(v.Refusals) == refusalsOfKey {
			v.RefusalsNote = "These are the newest. There are more."
			return nil
		}
		v.Refusals = append(v.Refusals, w.refusalRow(t, &list[i]))
		v.RefusalsNote = ""
	}
	return nil
}

// ofKey reports whether a refusal is of a key: has its values, and lacks what the
// key lacks.
func ofKey(r *metrics.Refusal, parts []enforcement.KeyPart) bool {
	for _, part := range parts {
		name := web.KeyAttributes([]string{part.Name})[0]
		i := slices.IndexFunc(r.Attributes, func(a enforcement.Attribute) bool { return a.Name == name })
		switch {
		case part.Missing != (i < 0):
			return false
		case part.Missing:
		case part.Name == web.PrefixAttribute:
			if networkOf(r.Attributes[i].Value) != networkOf(part.Value) {
				return false
			}
		case r.Attributes[i].Value != part.Value:
			return false
		}
	}
	return true
}

func (w *pages) refusalRow(t tenants.Tenant, r *metrics.Refusal) views.RefusalRow {
	v := views.RefusalRow{
		At: views.NewMoment(r.At, w.Now()), Request: strings.TrimSpace(r.Method + " " + r.Path), Sentence: refusalSentence(r), Wait: "–",
	}
	if v.Request == "" {
		v.Request = "no method and path were sent"
	}
	v.URL = web.TenantURL(t, "/denials/") + uuid.UUID(r.ID).String()
	switch {
	case r.RetryAfterMS == enforcement.Never:
		v.Wait = "waiting does not help"
	case r.RetryAfterMS > 0:
		v.Wait = "after " + views.Duration(time.Duration(r.RetryAfterMS)*time.Millisecond).Text
	}
	return v
}

// refusalSentence explains a refusal.
func refusalSentence(r *metrics.Refusal) string {
	var of string
	if i := slices.IndexFunc(r.Limits, func(l metrics.RefusalLimit) bool { return l.Policy == r.Policy && l.Limit == r.Limit }); i >= 0 {
		l := r.Limits[i]
		of = " of " + views.Count(l.Quota).Exact + " per " + enforcement.FormatWindow(time.Duration(l.WindowMS)*time.Millisecond)
		if r.Reason == enforcement.ReasonOverLimit {
			of += " had " + views.Count(max(l.Remaining, 0)).Exact + " left, and the request cost " + views.Count(l.Cost).Exact
		}
	}
	switch r.Reason {
	case enforcement.ReasonOverLimit:
		return "The limit " + r.Limit + of + "."
	case enforcement.ReasonCostExceedsQuota:
		return "It costs " + views.Count(r.Cost).Exact + ", more than the limit " + r.Limit + of + " can ever have."
	case enforcement.ReasonBlocked:
		return "The key was blocked."
	case enforcement.ReasonMissingAttribute:
		return "An attribute was missing that the policy counts by."
	case enforcement.ReasonLimiterUnavailable:
		return "The limiter could not be reached, and the policy refuses then."
	}
	return "It was refused: " + strings.ReplaceAll(string(r.Reason), "_", " ") + "."
}

// keyCurl is a check that is counted for a key.
func (w *pages) keyCurl(c echo.Context, p plans.Policy, key map[string]string) string {
	type check struct {
		Tenant     string            `json:"tenant,omitempty"`
		Method     string            `json:"method,omitempty"`
		Path       string            `json:"path,omitempty"`
		Attributes map[string]string `json:"attributes,omitempty"`
	}
	body := check{Method: "GET", Path: samplePath(p.Match.Path), Attributes: map[string]string{}}
	if web.VisitorOf(c).User.TenantID == "" {
		body.Tenant = web.TenantOf(c).Slug
	}
	if len(p.Match.Methods) > 0 {
		body.Method = p.Match.Methods[0]
	}
	for name, value := range p.Match.Attributes {
		body.Attributes[name] = value
	}
	for name, value := range key {
		if name == "ip" {
			if n, err := netip.ParsePrefix(value); err == nil {
				value = n.Addr().Next().String()
			}
		}
		body.Attributes[name] = value
	}
	return web.Curl(w.Origin(c)+"/v1/check", web.JSONText(body))
}

// samplePath is a path that a pattern matches.
func samplePath(pattern string) string {
	if pattern == "" || pattern == "*" {
		return "/"
	}
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, "{") || s == "*" || s == "**" {
			segments[i] = "1"
		}
	}
	return strings.Join(segments, "/")
}
