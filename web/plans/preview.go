package plans

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// previewSpans are the periods whose counts a preview can use.
var previewSpans = []string{"6h", "24h", "7d"}

// previewPlan is GET /plans/:plan/preview.
func (w *pages) previewPlan(c echo.Context, p plans.Plan) error {
	name := c.QueryParam("range")
	if !slices.Contains(previewSpans, name) {
		name = "24h"
	}
	span, _ := web.PresetNamed(name)
	now := w.Now()
	made, err := w.cfg.Preview.Draft(c.Request().Context(), p.ID, now.Add(-span.Length), now)
	if err != nil {
		return err
	}
	head, err := w.planHead(c, made.Plan, "/preview")
	if err != nil {
		return err
	}
	v := views.PlanPreview{PlanHead: head, Span: previewSpan(views.Zone(c.Request().Context()), span, made), Empty: made.Requests == 0}
	for _, option := range previewSpans {
		o, _ := web.PresetNamed(option)
		link := views.RangeLink{Text: o.Name, Label: o.Label, URL: planPath(p) + "/preview?range=" + o.Name, Current: o.Name == name}
		v.Spans = append(v.Spans, link)
	}
	v.Notes = previewNotes(made)
	v.Refused = views.Count(made.Refused)
	v.RefusedRate = views.Percent(made.Refused, made.Requests)
	v.Tiles = previewTiles(made)
	v.Replay = drawReplay(made)
	affected := 0 // policies that do not change, but whose denials may change because other policies do
	for i := range made.Policies {
		drawn := drawPreviewed(c, p, made, &made.Policies[i])
		if head.Differs && made.Policies[i].Change == preview.Same {
			v.Same = append(v.Same, drawn)
			if made.Policies[i].Certainty != preview.Exact {
				affected++
			}
		} else {
			v.Policies = append(v.Policies, drawn)
		}
		if s := &made.Policies[i]; s.Shadow != nil && s.Was == enforcement.PolicyShadow {
			v.InShadow = append(v.InShadow, drawShadow(s))
		}
	}
	page := w.planPage(c, made.Plan, "Preview")
	page.Charts = v.Replay != nil
	v.Folded = foldedWords(len(v.Same), affected)
	return w.Render(c, http.StatusOK, views.PlanPreviewPage(page, v))
}

// previewSpan returns English words for the time range of the figures. If the counts cover only a
// part of it, the words say which part.
func previewSpan(zone *time.Location, asked web.Preset, p preview.Preview) string {
	if p.Clipped != "" {
		return spanWords(zone, p.From, p.To) + ": the part of " + strings.ToLower(asked.Label[:1]) + asked.Label[1:] + " that has counts"
	}
	return asked.Label + ", " + spanWords(zone, p.From, p.To)
}

func spanWords(zone *time.Location, from, to time.Time) string {
	return from.In(zone).Format("2 Jan 15:04") + " to " + to.In(zone).Format("2 Jan 15:04 ") + zone.String()
}

func previewNotes(p preview.Preview) []string {
	var out []string
	if p.Clipped != "" {
		out = append(out, web.Sentence(p.Clipped))
	}
	if p.Left > 0 {
		out = append(out, views.Quantity(int64(p.Left), "tenant of the plan is", "tenants of the plan are")+
			" not in these figures, because the plan has too many tenants to read.")
	}
	if p.Joined > 0 {
		out = append(out, views.Quantity(int64(p.Joined), "tenant", "tenants")+" got the plan in this time and are left out.")
	}
	return out
}

func previewTiles(p preview.Preview) []views.Tile {
	tiles := []views.Tile{
		{Label: "Requests", Value: views.Count(p.Requests), Note: strconv.Itoa(p.Active) + " of " + tenantsWords(p.Tenants) + " sent requests"},
		{
			Label: "Denied by the published version", Value: views.Count(p.Refused),
			Note: views.Percent(p.Refused, p.Requests).Text + " of requests",
		},
	}
	would := views.Tile{Label: "Denied by the draft"}
	switch {
	case p.Total != nil && p.Total.Low == p.Total.High:
		would.Value, would.Note = views.Count(p.Total.High), views.Percent(p.Total.High, p.Requests).Text+" of requests"
	case p.Total != nil:
		would.Value = views.Count(p.Estimate)
		would.Note = "estimated, at least " + views.Count(p.Total.Low).Exact + ", at most " + views.Count(p.Total.High).Exact
	default:
		would.Value = views.Count(p.AtLeast)
		would.Value.Text = "at least " + would.Value.Text
		would.Note = views.Count(p.Estimate).Exact + " estimated, without what " + unknownWords(p) + " would deny"
	}
	return append(tiles, would)
}

// foldedWords returns the summary for the folded list of policies that the draft does not change.
func foldedWords(same, affected int) string {
	words := views.Quantity(int64(same), "policy does", "policies do") + " not change"
	if affected > 0 {
		words += ". Changes of other policies can affect " + strconv.Itoa(affected)
	}
	return words
}

// drawReplay returns the chart of the replayed requests. It returns nil if no requests were
// replayed.
func drawReplay(p preview.Preview) *views.PreviewReplay {
	r := p.Replay
	if r == nil || r.Requests == 0 {
		return nil
	}
	c := views.Chart{
		ID: "replay", Title: "Published against draft", Kind: "line", Axis: "denied requests " + views.PerStep(r.Step), Step: r.Step,
		Series: []views.Series{{Name: "Denied as published", Color: "bad"}, {Name: "Denied by the draft", Color: "accent"}},
		Summary: "Of " + views.Quantity(r.Requests, "replayed request", "replayed requests") + ", the published version denies " +
			views.Count(r.Published).Exact + ", and the draft " + views.Count(r.Draft).Exact + ".",
	}
	whole := len(r.Without) == 0
	if !whole { // without some policies, the number of denials is not that of the draft
		c.Title, c.Series = "Denied as published", c.Series[:1]
		c.Summary = "Of " + views.Quantity(r.Requests, "replayed request", "replayed requests") + ", the published version denies " +
			views.Count(r.Published).Exact + ". The replay does not have " + web.ListWords(shortened(r.Without)) + " of the draft."
	}
	for i := range r.Points {
		point := &r.Points[i]
		values := []float64{float64(point.Published), float64(point.Draft)}
		if !whole {
			values = values[:1]
		}
		c.Points = append(c.Points, views.ChartPoint{
			At: point.At, Values: values, Gap: point.Requests == 0, Unfinished: point.At.Add(r.Step).After(p.To),
		})
	}
	return &views.PreviewReplay{Summary: r.String(), Chart: c}
}

// unknownWords returns the names of the enforced policies for which not all denials are known.
func unknownWords(p preview.Preview) string {
	var slugs []string
	for i := range p.Policies {
		of := &p.Policies[i]
		if of.Mode.Denies() && of.Change != preview.Removed && (of.Certainty == preview.NeedsShadow || !of.From.Equal(p.From)) {
			slugs = append(slugs, of.Slug)
		}
	}
	return web.ListWords(shortened(slugs))
}

// shortened returns the first slugs of a list. If there are more, it adds words with their
// number.
func shortened(slugs []string) []string {
	const named = 3
	if more := len(slugs) - named; more > 0 {
		return append(slugs[:named:named], views.Count(int64(more)).Text+" more")
	}
	return slugs
}

var certainties = map[preview.Certainty]views.ModeBadge{
	preview.Exact:       {Text: "exact", Tone: "good", Title: "computed from the counts"},
	preview.Estimated:   {Text: "estimated", Tone: "warn", Title: "computed from counts per minute, with bounds"},
	preview.NeedsShadow: {Text: "needs shadow", Tone: "violet", Title: "the counts do not show it"},
}

func drawPreviewed(c echo.Context, plan plans.Plan, made preview.Preview, p *preview.Policy) views.PreviewPolicy {
	v := views.PreviewPolicy{
		ID: "preview-" + p.Slug, Slug: p.Slug, Mode: planMode(p.Mode), Certainty: certainties[p.Certainty], Why: web.Sentence(p.Why),
	}
	if p.Change != preview.Same {
		v.Change = string(p.Change)
	}
	for _, n := range p.Notes {
		v.Notes = append(v.Notes, web.Sentence(n))
	}
	if p.Replay != nil {
		v.Replayed = p.Replay.String()
	}
	if p.Published != nil {
		v.Figures = append(v.Figures, drawFigure("Denied as published", p.Requests, p.Published))
	}
	if p.Shadow != nil {
		title := "Would have denied, in shadow"
		if p.Was.Soft() {
			title = "Over its limits as published"
		}
		v.Figures = append(v.Figures, drawFigure(title, p.Requests, p.Shadow))
	}
	if p.Draft != nil && p.Change != preview.Removed {
		title := "The draft would deny"
		switch {
		case p.Mode == enforcement.PolicyShadow:
			title = "The draft would deny if it were enforced"
		case p.Mode.Soft():
			title = "Over its limits with the draft"
		}
		v.Figures = append(v.Figures, drawFigure(title, p.Requests, p.Draft))
	}
	if p.Certainty == preview.NeedsShadow && p.Mode.InForce() && p.Change != preview.Removed && mayEditPlans(c) {
		v.ShadowURL, v.Revision = planPath(plan)+"/preview/shadow", strconv.FormatInt(made.Plan.DraftRevision, 10)
	}
	return v
}

// drawShadow returns the view of a policy that is published in mode shadow. The view shows how
// many requests the policy would have denied.
func drawShadow(p *preview.Policy) views.PreviewPolicy {
	v := views.PreviewPolicy{ID: "preview-" + p.Slug, Slug: p.Slug}
	f := drawFigure("Would deny", p.Requests, p.Shadow)
	const named = 3
	var routes []string
	for _, r := range p.Shadow.Routes[:min(named, len(p.Shadow.Routes))] {
		routes = append(routes, r.Route)
	}
	if more := len(p.Shadow.Routes) - len(routes); more > 0 {
		routes = append(routes, views.Count(int64(more)).Text+" more")
	}
	if f.Summary = tenantsWords(p.Shadow.AllTenants); len(routes) > 0 {
		f.Summary += ": " + web.ListWords(routes)
	}
	v.Figures = []views.Figure{f}
	return v
}

func drawFigure(title string, requests int64, f *preview.Figure) views.Figure {
	v := views.Figure{Title: title, Refused: views.Count(f.Refused), Rate: views.Percent(f.Refused, requests)}
	if f.Low != f.High {
		v.Bounds = "between " + views.Count(f.Low).Exact + " and " + views.Count(f.High).Exact
	}
	var parts []string
	if f.AllTenants > 0 {
		parts = append(parts, tenantsWords(f.AllTenants))
	}
	if n := len(f.Routes); n > 0 {
		parts = append(parts, views.Quantity(int64(n), "route", "routes"))
	}
	v.Summary = strings.Join(parts, ", ")
	for _, t := range f.Tenants {
		row := views.FigureTenant{
			Name: t.Name, URL: "/tenants/" + t.Slug, Note: t.Unread, Refused: views.Count(t.Refused),
			Requests: views.Count(t.Requests),
		}
		if t.Low != t.High {
			row.Bounds = views.Count(t.Low).Text + " – " + views.Count(t.High).Text
		}
		v.Tenants = append(v.Tenants, row)
	}
	for _, r := range f.Routes {
		row := views.FigureRoute{Route: r.Route, Refused: views.Count(r.Refused), Requests: views.Count(r.Requests)}
		if !r.Exact {
			row.Note = "includes denials by other policies"
		}
		v.Routes = append(v.Routes, row)
	}
	for _, k := range f.Keys {
		v.Keys = append(v.Keys, views.FigureKey{
			Tenant: k.Tenant, Key: keyText(k), Refused: views.Count(k.Refused),
			Requests: views.Count(k.Requests),
		})
	}
	return v
}

// keyText returns the parts of a key.
func keyText(k preview.KeyFigure) string {
	var parts []string
	for i, name := range k.Names {
		switch {
		case i < len(k.Missing) && k.Missing[i]:
			parts = append(parts, "no "+name)
		case i < len(k.Values):
			parts = append(parts, name+" "+k.Values[i])
		}
	}
	text := strings.Join(parts, ", ")
	if k.Redacted {
		text += " (hashed)"
	}
	return text
}

// shadowPolicy is POST /plans/:plan/preview/shadow. It sets one policy of the draft to mode
// shadow.
func (w *pages) shadowPolicy(c echo.Context, p plans.Plan, f url.Values, revision int64) error {
	draft := p.Draft.Content()
	at := slices.IndexFunc(draft.Policies, func(o plans.Policy) bool { return o.Slug == f.Get("policy") })
	if at < 0 {
		return problem.New(problem.Conflict, "the draft no longer has this policy")
	}
	draft.Policies[at].Mode = enforcement.PolicyShadow
	ctx := c.Request().Context()
	if _, err := w.cfg.Plans.SaveDraft(ctx, p.ID, plans.New(draft), revision); err != nil {
		return err
	}
	w.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, planPath(p)+"/preview?done=shadowed")
}
