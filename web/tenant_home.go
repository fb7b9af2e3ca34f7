package web

import (
	"bytes"
	"context"
	"encoding/csv"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// leftEvery is how often a live page asks the limiter again.
const leftEvery = 2 * time.Second

// refusalsOfKey is how many refusals the page of a key has, and looksThrough how
// many of its policy are looked through for them.
const (
	refusalsOfKey = 20
	looksThrough  = 200
)

// rowsCounted is up to how many overrides, list entries and blocks are counted
// for a page: there may be 100,000 of each.
const rowsCounted = 500

var countedRows = exceptions.Filter{Limit: rowsCounted + 1}

func (w *Web) tenantRoutes() []row {
	const get = http.MethodGet
	const read = accounts.TenantRead
	return []row{
		{get, tenantPath, read, w.tenantHome, bounded},
		{get, tenantPath + "/live", read, w.tenantLive, slow},
		{get, tenantPath + "/usage.csv", read, w.tenantCSV, heavy},
		{get, tenantPath + "/usage/:policy", read, w.countedKey, bounded},
	}
}

// tenantHome is GET /tenants/{tenant}.
func (w *Web) tenantHome(c echo.Context) error {
	ctx, t := c.Request().Context(), tenantOf(c)
	s, path := spanOf(c.QueryParams(), w.cfg.Now()), below(t, "")
	v := views.TenantHome{
		Head: w.tenantHead(c, ""), Name: t.Name, Slug: t.Slug, Plan: t.Plan, Notice: tenantDone(c),
		CSVURL: s.address(path+"/usage.csv", nil),
	}
	if may(c, accounts.PlansRead) {
		v.PlanURL = w.planURL(t.Plan)
	}
	var err error
	if v.Left, v.Version, err = w.left(c); err != nil {
		return err
	}
	if v.Beside, err = w.besides(ctx, t); err != nil {
		return err
	}
	if v.Traffic, _, err = w.trafficParts(ctx, s, t.Number, path, nil); err != nil {
		return err
	}
	if v.Traffic.Empty != nil {
		v.Traffic.Empty.Curl = checkCurl(w.origin(c), map[bool]string{true: t.Slug}[who(c).user.TenantID == ""])
		v.Traffic.Empty.Link = views.Link{Text: "API keys", URL: apiKeysOf(t)}
	}
	v.Ranges = s.ranges(path, paused(s, nil), true)
	p := w.page(c, t.Name)
	p.Crumbs = w.tenantCrumbs(c, "")
	if len(p.Crumbs) == 1 {
		p.Crumbs = nil // they would say the title only
	}
	p.Charts, p.Live = true, trafficLive(s, path+"/live", nil, v.Traffic)
	return w.render(c, http.StatusOK, views.TenantHomePage(p, v))
}

// tenantLive is the stream of that page.
func (w *Web) tenantLive(c echo.Context) error {
	t := tenantOf(c)
	s := spanOf(c.QueryParams(), w.cfg.Now())
	traffic := w.liveTraffic(c, t.Number, below(t, ""), nil)
	var asked time.Time
	return w.stream(c, s.every(), func(ctx context.Context) ([]fragment, error) {
		list, err := traffic(ctx)
		if time.Since(asked) < leftEvery {
			return list, err
		}
		asked = time.Now()
		u, failed := w.cfg.Usage.Tenant(ctx, t.ID)
		if failed != nil && !inPlace(failed) {
			return list, failed
		}
		return append(list, fragment{"left", views.LeftBody(w.leftOf(t, u, failed))}), err
	})
}

// inPlace reports whether an error of usage is shown in its place, and not instead
// of the page.
func inPlace(err error) bool {
	return problem.Is(err, problem.Unavailable) || problem.Is(err, problem.NotFound)
}

// left is what the path's tenant has left, with the version of its plan in words.
func (w *Web) left(c echo.Context) (views.Left, string, error) {
	t := tenantOf(c)
	u, err := w.cfg.Usage.Tenant(c.Request().Context(), t.ID)
	if err != nil && !inPlace(err) {
		return views.Left{}, "", err
	}
	version := ""
	if u.PlanVersion > 0 {
		version = " · version " + strconv.Itoa(u.PlanVersion)
	}
	l := w.leftOf(t, u, err)
	if l.Empty.Title != "" && may(c, accounts.TenantWrite) {
		l.Empty.Link = views.Link{Text: "Choose a plan", URL: settingsOf(t)}
	}
	return l, version, nil
}

// leftOf words what a tenant has left.
func (w *Web) leftOf(t tenants.Tenant, u usage.Usage, err error) views.Left {
	switch {
	case problem.Is(err, problem.NotFound):
		return views.Left{Error: "This node does not know the tenant yet: look again in a moment."}
	case err != nil:
		return views.Left{Error: "What is left is not known: the counters cannot be reached. Checks are answered as each policy says for this case."}
	case u.Plan == "":
		return views.Left{Empty: views.Empty{Title: "No plan, no limits", Text: "Nothing is counted while the tenant follows no plan."}}
	case len(u.Policies) == 0:
		return views.Left{Empty: views.Empty{Title: "No limits", Text: "The plan has no policies: nothing is counted."}}
	}
	var l views.Left
	for i := range u.Policies {
		l.Policies = append(l.Policies, leftPolicy(t, &u.Policies[i]))
	}
	return l
}

func leftPolicy(t tenants.Tenant, p *usage.PolicyUsage) views.LeftPolicy {
	v := views.LeftPolicy{
		ID: "left-" + p.Policy, Slug: p.Policy, Whole: len(p.CountBy) == 0,
		Applies: matchWords(p.Methods, p.Path, len(p.Attributes)) + ", counted " + countedWords(p.CountBy),
	}
	if p.Mode != enforcement.PolicyEnforce {
		v.Mode = string(p.Mode)
	}
	if !v.Whole && p.Pace.Known && p.Pace.PerMinute+p.Pace.RefusedPerMinute > 0 {
		v.Pace = "All keys together: " + paceWords(&p.Pace) + "."
	}
	for i := range p.Keys {
		v.Keys = append(v.Keys, leftKey(t, p, i))
	}
	switch {
	case p.Mode == enforcement.PolicyOff:
		v.Note = "The policy is off: it counts nothing."
	case len(p.Keys) == 0 && p.Mode == enforcement.PolicyShadow:
		v.Note = "The policy only watches: which of its keys are busy is not ranked."
	case len(p.Keys) == 0:
		v.Note = "No key was counted in the last hour."
	case p.Keys[0].Redacted:
		v.Note = "Values are not kept for this tenant: what each of these keys has left is not known."
	case p.More && !v.Whole:
		v.Note = "These are the busiest keys of the last hour. There are others."
	}
	return v
}

func leftKey(t tenants.Tenant, p *usage.PolicyUsage, i int) views.LeftKey {
	k := &p.Keys[i]
	v := views.LeftKey{ID: "left-" + p.Policy + "-" + strconv.Itoa(i), Words: keyWordsOf(k.Attributes(), p.CountBy)}
	if k.Redacted {
		v.Words = "hash " + strings.Join(hashes(k.Key), ", ")
	} else {
		v.URL = keyURL(t, p.Policy, k.Attributes())
	}
	if k.Override != nil {
		v.Override = "override until " + k.Override.Until.UTC().Format("2 Jan 15:04 UTC")
	}
	if k.Block != nil {
		v.Block = "blocked until " + k.Block.Until.UTC().Format("2 Jan 15:04 UTC")
	}
	for j := range k.Limits {
		v.Limits = append(v.Limits, leftLimit(&k.Limits[j], &k.Pace))
	}
	return v
}

// hashes of a key whose values are not kept, shortened for the eye.
func hashes(key []enforcement.KeyPart) []string {
	var list []string
	for _, part := range key {
		list = append(list, part.Name+" "+part.Value[:min(12, len(part.Value))])
	}
	return list
}

func leftLimit(l *usage.LimitUsage, pace *usage.Pace) views.LeftLimit {
	v := views.LeftLimit{
		Name: l.Limit.Name, Aloud: plans.Describe(l.Limit), Used: views.Count(l.Used), Capacity: views.Count(l.Capacity), Left: views.Count(l.Remaining),
		N: l.Used, Most: max(l.Capacity, 1),
	}
	if l.ResetAfter > 0 {
		v.Reset = "as new in " + views.Duration(l.ResetAfter).Text
	}
	switch {
	case l.Remaining == 0:
		v.Tone, v.Ends = "bad", "used up"
	case l.ExhaustedAfter != nil && *l.ExhaustedAfter == 0:
		v.Tone, v.Ends = "bad", "the next request is refused, at "+paceWords(pace)
	case l.ExhaustedAfter != nil:
		v.Ends = "used up in " + views.Duration(*l.ExhaustedAfter).Text + " at " + paceWords(pace)
		if *l.ExhaustedAfter < l.Limit.Window || l.Used*10 >= l.Capacity*8 {
			v.Tone = "warn"
		}
	case !pace.Known:
		v.Ends = "how fast it is used is not known"
	case pace.PerMinute+pace.RefusedPerMinute == 0:
		v.Ends = "nothing was asked in the last minutes"
	default:
		v.Ends = "does not run out at this pace, " + paceWords(pace)
	}
	return v
}

// paceWords say a pace: "83 per minute", "80 to 83 per minute".
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

// besides are what is in force beside the plan.
func (w *Web) besides(ctx context.Context, t tenants.Tenant) ([]views.Beside, error) {
	now := w.cfg.Now()
	overrides, err := w.cfg.Exceptions.Overrides(ctx, t.ID, countedRows)
	if err != nil {
		return nil, err
	}
	blocks, err := w.cfg.Exceptions.Blocks(ctx, t.ID, countedRows)
	if err != nil {
		return nil, err
	}
	entries, err := w.cfg.Exceptions.Entries(ctx, t.ID, countedRows)
	if err != nil {
		return nil, err
	}
	var ends [3][]time.Time
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
		{"Overrides", "/overrides", "the plan's numbers hold"},
		{"List entries", "/lists", "nothing is denied or let pass by a list"},
		{"Blocks", "/blocks", "no key is blocked"},
	} {
		n, next := inForce(ends[i], now)
		b := views.Beside{Label: what.label, URL: below(t, what.path), Count: views.Count(int64(n)), Text: what.none}
		switch {
		case len(ends[i]) > rowsCounted:
			b.Count, b.Text = views.Number{Text: strconv.Itoa(rowsCounted) + "+", Exact: "more than " + strconv.Itoa(rowsCounted)}, "the newest are counted"
			next = time.Time{} // of those that were not read nothing is known
		case n > 0:
			b.Text = "without an end"
		}
		if !next.IsZero() {
			b.Next, b.HasNext = views.NewMoment(next, now), true
		}
		list = append(list, b)
	}
	return list, nil
}

// inForce counts what has not ended, and tells the next end; zero: none does.
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

// tenantCSV is GET /tenants/{tenant}/usage.csv: every policy, hour by hour.
func (w *Web) tenantCSV(c echo.Context) error {
	ctx, t := c.Request().Context(), tenantOf(c)
	s := spanOf(c.QueryParams(), w.cfg.Now())
	if s.fault != "" {
		return problem.New(problem.Invalid, "%s", s.fault)
	}
	d, err := w.publishedDocument(ctx, t.Plan)
	if err != nil {
		return err
	}
	ranking, err := w.cfg.Analytics.Policies(ctx, metrics.Query{Tenant: t.Number, From: s.from, To: s.to, Limit: 100})
	if err != nil {
		return err
	}
	var slugs []string
	for _, p := range d.Policies() {
		slugs = append(slugs, p.Slug)
	}
	for _, p := range ranking.Routes {
		if !slices.Contains(slugs, p.Name) {
			slugs = append(slugs, p.Name)
		}
	}
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	_ = out.Write([]string{"policy", "hour", "requests", "allowed", "limited", "cost"}) // a buffer takes all
	for _, slug := range slugs {
		q := metrics.Query{Tenant: t.Number, Policy: slug, From: s.from, To: s.to, Step: metrics.Hour}
		traffic, err := w.cfg.Analytics.Traffic(ctx, q)
		if err != nil {
			return err
		}
		for _, p := range traffic.Points {
			if p.Requests == 0 {
				continue
			}
			_ = out.Write([]string{
				cell(slug), p.At.UTC().Format(time.RFC3339), strconv.FormatInt(p.Requests, 10),
				strconv.FormatInt(p.Allowed(), 10), strconv.FormatInt(p.Limited(), 10), strconv.FormatInt(p.Cost, 10),
			})
		}
	}
	out.Flush()
	h := c.Response().Header()
	h.Set("Content-Disposition", `attachment; filename="headgate-`+t.Slug+`-usage.csv"`)
	return c.Blob(http.StatusOK, "text/csv; charset=utf-8", b.Bytes())
}

// cell is a text that a spreadsheet does not take for a formula.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// ---- one counted key

// namedKeyOf reads the key of the page: what is told by k.<name>, of ip/64 also
// by that name.
func namedKeyOf(q url.Values, p plans.Policy) map[string]string {
	key := keyIn(q, p)
	if value := q.Get(keyField + prefixAttribute); value != "" && key["ip"] == "" && slices.Contains(p.CountBy, prefixAttribute) {
		key["ip"] = value
	}
	return key
}

// countedKey is GET /tenants/{tenant}/usage/{policy}?k.<name>=<value>.
func (w *Web) countedKey(c echo.Context) error {
	ctx, t := c.Request().Context(), tenantOf(c)
	list, err := w.policiesOf(c)
	if err != nil {
		return err
	}
	p, known := policyNamed(list, c.Param("policy"))
	if !known {
		return errNoPage
	}
	key := namedKeyOf(c.QueryParams(), p)
	u, err := w.cfg.Usage.Key(ctx, t.ID, p.Slug, key)
	if err != nil && !inPlace(err) {
		return err
	}
	v := views.CountedKey{
		Head: w.tenantHead(c, ""), Notice: tenantDone(c), Policy: p.Slug, Applies: appliesWords(p), Left: w.leftOf(t, u, err),
	}
	parts := partsOf(key, p)
	if len(u.Policies) > 0 && len(u.Policies[0].Keys) > 0 {
		k := &u.Policies[0].Keys[0]
		parts, key = k.Key, k.Attributes()
		v.Left.Policies[0].Whole, v.Left.Policies[0].Note, v.Left.Policies[0].Pace = true, "", ""
	}
	v.Words = keyWordsOf(key, p.CountBy)
	if mayInTenant(c, accounts.ExceptionsWrite) {
		v.Actions = exceptionLinks(t, p, key)
	}
	also := keyQuery(key)
	path := below(t, "/usage/") + url.PathEscape(p.Slug)
	s := spanOf(c.QueryParams(), w.cfg.Now())
	v.Ranges = s.ranges(path, also, false)
	if err := w.keyChart(ctx, &v, t, p, parts, s, path); err != nil {
		return err
	}
	if err := w.keyRefusals(ctx, &v, t, p, parts, s); err != nil {
		return err
	}
	if _, there := w.readable[tenantPath+"/denials"]; there {
		q := keyQuery(key)
		q.Set("policy", p.Slug)
		v.MoreURL = joinedQuery(s.address(below(t, "/denials"), nil), q)
	}
	v.Curl = w.keyCurl(c, p, key)
	page := w.tenantPage(c, v.Words)
	page.Charts = v.HasChart
	return w.render(c, http.StatusOK, views.CountedKeyPage(page, v))
}

// partsOf is a key in the order of its policy.
func partsOf(key map[string]string, p plans.Policy) []enforcement.KeyPart {
	var parts []enforcement.KeyPart
	for _, by := range p.CountBy {
		value, sent := key[attributesOf([]string{by})[0]]
		parts = append(parts, enforcement.KeyPart{Name: by, Value: value, Missing: !sent})
	}
	return parts
}

// exceptionLinks are the forms that set exceptions for a key, filled in.
func exceptionLinks(t tenants.Tenant, p plans.Policy, key map[string]string) []views.Link {
	of := keyQuery(key)
	of.Set("policy", p.Slug)
	override, entry := url.Values{"policy": {p.Slug}}, url.Values{"list": {"allow"}}
	for _, name := range attributesOf(p.CountBy) {
		if value, sent := key[name]; sent {
			override.Set("attribute", name)
			entry.Set("attribute", name)
			entry.Set("value", value)
			if strings.Contains(value, "/") && name == "ip" || slices.Contains(p.CountBy, prefixAttribute) && name == "ip" && strings.Contains(value, ":") {
				override.Set("prefix", networkOf(value))
				entry.Set("value", networkOf(value))
			} else {
				override.Set("value", value)
			}
			break
		}
	}
	links := []views.Link{
		{Text: "Override", URL: joinedQuery(below(t, "/overrides/new"), override)},
		{Text: "Reset", URL: joinedQuery(below(t, "/reset"), of)},
		{Text: "Block", URL: joinedQuery(below(t, "/blocks/new"), of)},
	}
	if entry.Has("value") {
		links = append(links, views.Link{Text: "Allow list", URL: joinedQuery(below(t, "/lists/new"), entry)})
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
func (w *Web) keyChart(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, parts []enforcement.KeyPart, s span, path string) error {
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
	q := s.query(t.Number)
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
	v.Chart.Summary = "Allowed " + betweenWords(allowed.Count, allowed.Error) + ", refused by a limit or a block " + betweenWords(limited.Count, limited.Error) + "."
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
func (w *Web) wholeChart(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, s span, path string) error {
	q := s.query(t.Number)
	q.Policy = p.Slug
	traffic, err := w.cfg.Analytics.Traffic(ctx, q)
	if err != nil {
		return err
	}
	points := make([]views.ChartPoint, len(traffic.Points))
	for i := range traffic.Points {
		points[i] = views.ChartPoint{At: traffic.Points[i].At, Values: []float64{float64(traffic.Points[i].Allowed()), float64(traffic.Points[i].Limited())}}
	}
	v.Chart, v.HasChart = usedChart(traffic.Step.Duration(), points, path, nil), true
	v.Chart.Summary = "Allowed " + betweenWords(traffic.Total.Allowed(), 0) + ", refused by its limits " + betweenWords(traffic.Total.Limited(), 0) + "."
	return nil
}

func usedChart(step time.Duration, points []views.ChartPoint, path string, key map[string]string) views.Chart {
	return views.Chart{
		ID: "used", Title: "Requests over time", Kind: "area", Step: step, Points: points, Zoom: joinedQuery(path, keyQuery(key)),
		Series: []views.Series{{Name: "Allowed", Color: "good"}, {Name: "Refused", Color: "bad"}},
	}
}

// keyRefusals are the recent refusals of a key that its policy is behind.
func (w *Web) keyRefusals(ctx context.Context, v *views.CountedKey, t tenants.Tenant, p plans.Policy, parts []enforcement.KeyPart, s span) error {
	if t.RedactValues && len(parts) > 0 {
		v.RefusalsNote = "Values are not kept for this tenant, so nobody knows which refusals are of this key."
		return nil
	}
	f := metrics.RefusalFilter{Tenant: t.Number, Policy: p.Slug, From: s.from, To: s.to, Limit: looksThrough}
	for _, part := range parts {
		if !part.Missing && part.Name != prefixAttribute {
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
		name := attributesOf([]string{part.Name})[0]
		i := slices.IndexFunc(r.Attributes, func(a enforcement.Attribute) bool { return a.Name == name })
		switch {
		case part.Missing != (i < 0):
			return false
		case part.Missing:
		case part.Name == prefixAttribute:
			if networkOf(r.Attributes[i].Value) != networkOf(part.Value) {
				return false
			}
		case r.Attributes[i].Value != part.Value:
			return false
		}
	}
	return true
}

func (w *Web) refusalRow(t tenants.Tenant, r *metrics.Refusal) views.RefusalRow {
	v := views.RefusalRow{
		At: views.NewMoment(r.At, w.cfg.Now()), Request: strings.TrimSpace(r.Method + " " + r.Path), Sentence: refusalSentence(r), Wait: "–",
	}
	if v.Request == "" {
		v.Request = "no method and path were sent"
	}
	if _, there := w.readable[tenantPath+"/denials/:decision"]; there {
		v.URL = below(t, "/denials/") + uuid.UUID(r.ID).String()
	}
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
func (w *Web) keyCurl(c echo.Context, p plans.Policy, key map[string]string) string {
	type check struct {
		Tenant     string            `json:"tenant,omitempty"`
		Method     string            `json:"method,omitempty"`
		Path       string            `json:"path,omitempty"`
		Attributes map[string]string `json:"attributes,omitempty"`
	}
	body := check{Method: "GET", Path: samplePath(p.Match.Path), Attributes: map[string]string{}}
	if who(c).user.TenantID == "" {
		body.Tenant = tenantOf(c).Slug
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
	return curlTo(w.origin(c)+"/v1/check", jsonText(body))
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
