package traffic

import (
	"cmp"
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
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// denialsOfKey is the maximum number of denials that the page of a counted key lists. The page
// searches for them in the latest denials of the policy, of which it reads at most
// denialsSearched.
const (
	denialsOfKey    = 20
	denialsSearched = 200
)

// namedKeyOf returns the counted key that the query parameters of the URL name, such as
// k.user=u1. The parameter k.ip/64 means the same as k.ip.
func namedKeyOf(q url.Values, p plans.Policy) map[string]string {
	key := web.KeyFromForm(q, p)
	if value := q.Get(web.KeyFieldPrefix + enforcement.IPNetwork); value != "" && key["ip"] == "" &&
		slices.Contains(p.CountBy, enforcement.IPNetwork) {
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
		Head: w.TenantHead(c, ""), Notice: web.Notice(c), Policy: p.Slug, Applies: web.AppliesWords(p), Left: w.leftOf(ctx, t, u, err),
	}
	parts := partsOf(key, p)
	if len(u.Policies) > 0 && len(u.Policies[0].Keys) > 0 {
		k := &u.Policies[0].Keys[0]
		parts, key = k.Key, k.Attributes()
		v.Left.Policies[0].Whole, v.Left.Policies[0].Note, v.Left.Policies[0].Pace = true, "", ""
	}
	v.Words = web.KeyWords(key, p.CountBy)
	w.holders(c, &v, u, key)
	if web.MayInTenant(c, accounts.ExceptionsWrite) {
		links := requests.LinksOf(t.Slug, p.Slug, p.CountBy, key, web.Here(c))
		v.Actions = []views.Link{{Text: "Override", URL: links.Override}, {Text: "Reset", URL: links.Reset}, {Text: "Block", URL: links.Block}}
		if slices.ContainsFunc(p.Limits, enforcement.Limit.Grantable) && p.Mode == enforcement.PolicyEnforce {
			v.Actions = append(v.Actions, views.Link{Text: "Top up", URL: links.Grant})
		}
		if links.Allow != "" {
			v.Actions = append(v.Actions, views.Link{Text: "Allow list", URL: links.Allow})
		}
	}
	path := web.TenantURL(t, "/usage/") + url.PathEscape(p.Slug)
	s := w.TimeRange(c)
	v.Ranges = s.Picker(path, web.KeyQuery(key), false)
	if err := w.keyChart(ctx, &v, t, p, parts, s, path); err != nil {
		return err
	}
	if err := w.keyDenials(ctx, &v, t, p, parts, s); err != nil {
		return err
	}
	v.MoreURL = s.Address(web.TenantURL(t, "/denials"), web.With(web.KeyQuery(key), "policy", p.Slug))
	v.Curl = w.keyCurl(c, p, key)
	page := w.TenantPage(c, v.Words)
	page.Charts = v.HasChart
	return w.Render(c, http.StatusOK, views.CountedKeyPage(page, v))
}

// holders adds the leases that hold places of the key's concurrency limits to the page v.
func (w *pages) holders(c echo.Context, v *views.CountedKey, u usage.Usage, key map[string]string) {
	if len(u.Policies) == 0 || len(u.Policies[0].Keys) == 0 {
		return
	}
	revoke := ""
	if web.MayInTenant(c, accounts.ExceptionsWrite) {
		revoke = web.AppendQuery(web.TenantURL(web.TenantOf(c), "/leases/revoke"), web.With(web.KeyQuery(key), "policy", v.Policy))
	}
	limits := u.Policies[0].Keys[0].Limits
	for i := range limits {
		l := &limits[i]
		v.Places = v.Places || l.Limit.Algorithm == enforcement.Concurrency
		for _, h := range l.Holders {
			row := views.Holder{Lease: h.Lease, Limit: l.Limit.Name, Places: views.Count(h.Places), Ends: views.NewMoment(h.Until, w.Now())}
			if revoke != "" {
				row.RevokeURL = web.AppendQuery(revoke, url.Values{"lease": {h.Lease}})
			}
			v.Holders = append(v.Holders, row)
		}
	}
}

// partsOf returns a key as a list of parts, in the order of the policy's count_by.
func partsOf(key map[string]string, p plans.Policy) []enforcement.KeyPart {
	var parts []enforcement.KeyPart
	for _, by := range p.CountBy {
		value, sent := key[enforcement.CountedAttribute(by)]
		parts = append(parts, enforcement.KeyPart{Name: by, Value: value, Missing: !sent})
	}
	return parts
}

// keyChart adds the chart of the requests that were counted under one key. A policy without
// count_by has only one key, so its chart shows all requests of the policy.
func (w *pages) keyChart(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, parts []enforcement.KeyPart,
	s web.TimeRange, path string,
) error {
	q := s.Query(t.Number)
	q.Policy = p.Slug
	v.Chart = views.Chart{
		ID: "used", Title: "Requests over time", Kind: "area",
		Series: []views.Series{{Name: "Allowed", Color: "good"}, {Name: "Denied", Color: "bad"}},
	}
	if len(p.CountBy) == 0 {
		traffic, err := w.cfg.Analytics.Traffic(ctx, q)
		if err != nil {
			return err
		}
		for i := range traffic.Points {
			at := &traffic.Points[i]
			v.Chart.Points = append(v.Chart.Points, views.ChartPoint{At: at.At, Values: []float64{float64(at.Allowed()), float64(at.Limited())}})
		}
		w.drawSteps(&v.Chart, traffic.Step.Duration())
		v.Chart.Zoom, v.HasChart = path, true
		v.Chart.Summary = "Allowed " + betweenWords(traffic.Total.Allowed(), 0) + ", denied by its limits " +
			betweenWords(traffic.Total.Limited(), 0) + "."
		return nil
	}
	if t.RedactValues {
		v.ChartNote = "This tenant does not keep values, so the usage of one key over time is unknown."
		return nil
	}
	top := metrics.TopKey{Tenant: t.Number, Policy: p.Slug}
	for _, part := range parts {
		top.Names, top.Values, top.Missing = append(top.Names, part.Name), append(top.Values, part.Value), append(top.Missing, part.Missing)
	}
	allowed, err := w.cfg.Analytics.Key(ctx, q, top, metrics.AllowedKeys)
	if err != nil {
		return err
	}
	limited, err := w.cfg.Analytics.Key(ctx, q, top, metrics.LimitedKeys)
	if err != nil {
		return err
	}
	for i, a := range allowed.Points {
		point := views.ChartPoint{At: a.At, Values: []float64{float64(a.Count), 0}}
		if i < len(limited.Points) {
			point.Values[1] = float64(limited.Points[i].Count)
		}
		v.Chart.Points = append(v.Chart.Points, point)
	}
	key := usage.KeyUsage{Key: parts}
	w.drawSteps(&v.Chart, allowed.Step.Duration())
	v.Chart.Zoom, v.HasChart = web.AppendQuery(path, web.KeyQuery(key.Attributes())), true
	v.Chart.Summary = "Allowed " + betweenWords(allowed.Count, allowed.Error) + ", denied by a limit or a block " +
		betweenWords(limited.Count, limited.Error) + "."
	v.ChartNote = "Headgate keeps only the busiest keys of each minute. Other minutes can have a few requests that the chart does not show."
	return nil
}

// drawSteps sets the step of a chart, which is the time between two of its points. It marks a
// point as unfinished if the step of the point has not ended.
func (w *pages) drawSteps(c *views.Chart, step time.Duration) {
	c.Step, c.Axis = step, "requests "+views.PerStep(step)
	for i := range c.Points {
		c.Points[i].Unfinished = c.Points[i].At.Add(step).After(w.Now())
	}
}

func betweenWords(count, wrong int64) string {
	if count == 1 && wrong == 0 {
		return "once"
	}
	return views.Between(count-wrong, count) + " times"
}

// keyDenials adds the latest denials of a counted key by the policy that counts it.
func (w *pages) keyDenials(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, parts []enforcement.KeyPart,
	s web.TimeRange,
) error {
	if t.RedactValues && len(parts) > 0 {
		v.DenialsNote = "This tenant does not keep values, so the denials of this key are unknown."
		return nil
	}
	f := metrics.RefusalFilter{Tenant: t.Number, Policy: p.Slug, From: s.From, To: s.To, Limit: denialsSearched}
	for _, part := range parts {
		if !part.Missing && part.Name != enforcement.IPNetwork {
			f.Attributes = append(f.Attributes, enforcement.Attribute{Name: part.Name, Value: part.Value})
		}
	}
	list, err := w.cfg.Analytics.Refusals(ctx, f)
	if err != nil {
		return err
	}
	v.DenialsNote = "No denials of this key by this policy in this time. Headgate keeps denials for a day."
	for i := range list {
		if !ofKey(&list[i], parts) {
			continue
		}
		if len(v.Denials) == denialsOfKey {
			v.DenialsNote = "These are the newest denials. There are more."
			return nil
		}
		v.Denials = append(v.Denials, w.keyDenial(t, &list[i]))
		v.DenialsNote = ""
	}
	return nil
}

// ofKey reports whether a denied request was counted under a key. For each attribute of the
// key, the request must have the same value. If the attribute is missing in the key, it must
// also be missing in the request.
func ofKey(r *metrics.Refusal, parts []enforcement.KeyPart) bool {
	for _, part := range parts {
		name := enforcement.CountedAttribute(part.Name)
		i := slices.IndexFunc(r.Attributes, func(a enforcement.Attribute) bool { return a.Name == name })
		switch {
		case part.Missing != (i < 0):
			return false
		case part.Missing:
		case part.Name == enforcement.IPNetwork:
			if requests.Network(r.Attributes[i].Value) != requests.Network(part.Value) {
				return false
			}
		case r.Attributes[i].Value != part.Value:
			return false
		}
	}
	return true
}

func (w *pages) keyDenial(t tenants.Tenant, r *metrics.Refusal) views.KeyDenial {
	v := views.KeyDenial{
		At: views.NewMoment(r.At, w.Now()), Request: strings.TrimSpace(r.Method + " " + r.Path),
		Sentence: web.Sentence(requests.DenialSentence(r)), Wait: "–",
		URL: web.TenantURL(t, "/denials/") + uuid.UUID(r.ID).String(),
	}
	v.Request = cmp.Or(v.Request, "no method or path")
	switch {
	case r.RetryAfterMS == enforcement.Never:
		v.Wait = "waiting does not help"
	case r.RetryAfterMS > 0:
		v.Wait = "after " + views.Duration(time.Duration(r.RetryAfterMS)*time.Millisecond).Text
	}
	return v
}

// keyCurl returns a curl command that sends a check that is counted under the given key.
func (w *pages) keyCurl(c echo.Context, p plans.Policy, key map[string]string) string {
	body := requests.Check{Method: "GET", Path: samplePath(p.Match.Path), Attributes: map[string]string{}}
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
		if n, err := netip.ParsePrefix(value); err == nil && name == "ip" {
			value = n.Addr().Next().String()
		}
		body.Attributes[name] = value
	}
	return body.Command(w.Origin(c))
}

// samplePath returns an example of a path that a path pattern matches.
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
