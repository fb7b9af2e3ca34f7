package decisions

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// An explainer creates the views for the parts of an explanation.
type explainer struct {
	w      *pages
	c      echo.Context
	x      *enforcement.Explanation
	tenant string // slug
	now    time.Time
	write  bool // the visitor may set overrides and blocks
}

// page returns the URL of a page of the tenant, or "" if the visitor may not open the page.
func (e *explainer) page(below string) string {
	if !e.w.CanOpen(e.c, web.TenantPath+below) {
		return ""
	}
	return web.RouteForTenant(web.TenantPath+below, e.tenant)
}

// list returns the list entry that decided the request, or nil if no list entry did.
func (e *explainer) list() *views.ExplainedList {
	d := &e.x.Decision
	if d.List == nil {
		return nil
	}
	v := &views.ExplainedList{
		Name: "Allow list", Attribute: d.List.Attribute, Value: d.List.Value, Reason: d.List.Reason,
		URL: e.page("/lists"),
	}
	if d.Reason == enforcement.ReasonDeniedByList {
		v.Name = "Deny list"
	}
	v.Ends = views.Moment{Words: "none"}
	if d.List.Until != 0 {
		v.Ends = views.NewMoment(enforcement.Instant(d.List.Until), e.now)
	}
	return v
}

// policy returns the view of one policy of the plan.
func (e *explainer) policy(p *enforcement.PolicyExplanation) views.ExplainedPolicy {
	r := p.Rule
	v := views.ExplainedPolicy{
		Slug: r.Policy, Applies: p.Applies, Because: web.Sentence(p.Because(&e.x.Decision)), ReplacedBy: p.ReplacedBy,
		Leased: r.Consistency == enforcement.Leased,
		Method: "every method", Path: "every path", Mode: string(r.Mode),
	}
	switch p.Why {
	case enforcement.WhyApplies:
		v.Badge, v.Tone = "applies", "good"
		if !r.Mode.InForce() {
			v.Badge, v.Tone = "applies in shadow", "violet"
		}
	case enforcement.WhyBlocked:
		v.Badge, v.Tone = "blocked", "bad"
	case enforcement.WhyDenied:
		v.Badge, v.Tone = "denies", "bad"
		if !p.Applies {
			v.Badge, v.Tone = "does not apply", ""
		}
	default:
		v.Badge = "does not apply"
	}
	if len(r.Methods) > 0 {
		v.Method = strings.Join(r.Methods, ", ")
	}
	if r.Path != "" && r.Path != "*" {
		v.Path = r.Path
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		v.Attributes = append(v.Attributes, views.KeyFact{Name: name, Value: r.Attributes[name]})
	}
	for _, part := range r.KeyOf(e.x.Decision.Check, nil) {
		v.Key = append(v.Key, views.KeyFact{Name: part.Name, Value: part.Value, Missing: part.Missing})
	}
	e.exceptions(p, &v)
	for _, now := range p.Limits {
		v.Limits = append(v.Limits, e.limit(r, now))
	}
	return v
}

// overWords says what a policy in this mode does with a request that is over a limit.
var overWords = map[enforcement.PolicyMode]string{
	enforcement.PolicyEnforce: "denies", enforcement.PolicyDegrade: "cheap answer", enforcement.PolicyDelay: "delays",
	enforcement.PolicyShadow: "would deny",
}

func (e *explainer) limit(r *enforcement.Rule, now enforcement.LimitNow) views.ExplainedLimit {
	most := now.Limit.Capacity() + now.RolledOver
	granted := int64(0)
	for _, g := range now.Grants {
		granted += g.Left
	}
	most += granted
	l := views.ExplainedLimit{
		Name: now.Limit.Name, Aloud: plans.Describe(now.Limit.Limit), Used: max(0, most-now.Remaining), Most: most, Tone: "good",
		Left: views.Count(now.Remaining), Holds: views.Count(most), Remaining: now.Remaining, ResetMillis: now.ResetAfter,
	}
	for i := range e.x.Decision.Limits {
		if d := &e.x.Decision.Limits[i]; d.Rule == r && !d.Allowed && d.Limit.Name == l.Name {
			l.Over = overWords[r.Mode]
		}
	}
	if l.Over != "" && !r.Mode.Denies() {
		l.Tone = "warn"
	} else if l.Over != "" || now.Remaining == 0 {
		l.Tone = "bad"
	} else if now.Remaining*4 < most {
		l.Tone = "warn"
	}
	if now.LeasedElsewhere > 0 {
		l.Leased = fmt.Sprintf("Leased: other nodes hold up to %s units, so this node may deny that many units early. "+
			"The policy never allows more than the limit.", views.Count(now.LeasedElsewhere).Text)
	}
	if granted > 0 {
		l.Granted = views.Count(granted).Exact + " of them from grants"
	}
	if now.ResetAfter > 0 {
		l.Reset = "resets in " + waitWords(time.Duration(now.ResetAfter)*time.Millisecond)
	}
	if now.RolledOver > 0 {
		l.RolledOver = views.Count(now.RolledOver).Exact + " rolled over"
	}
	return l
}

// exceptions adds the override and the block that apply to the request's key to the view.
// It also adds links to change them.
func (e *explainer) exceptions(p *enforcement.PolicyExplanation, v *views.ExplainedPolicy) {
	key := map[string]string{}
	for _, a := range e.x.Decision.Check.Attributes {
		if slices.Contains(web.KeyAttributes(p.Rule.CountBy), a.Name) && a.Value != "" {
			key[a.Name] = a.Value
		}
	}
	if o := p.Override; o != nil {
		v.Override, v.OverrideEnds = "in force", views.NewMoment(enforcement.Instant(o.Until), e.now)
		if page := e.page("/overrides"); page != "" {
			v.OverrideURL = web.AppendQuery(page, web.With(web.KeyQuery(key), "policy", p.Rule.Policy))
		}
	}
	if b := p.Block; b != nil {
		v.Block, v.BlockURL, v.BlockReason = "in force", e.page("/blocks"), b.Reason
		v.BlockEnds = views.NewMoment(enforcement.Instant(b.Until), e.now)
	}
	if !p.Matches {
		return
	}
	link := func(below, text, address string) {
		if e.page(below) != "" {
			v.Links = append(v.Links, views.Link{Text: text, URL: address})
		}
	}
	links, limits := requests.LinksOf(e.tenant, p.Rule.Policy, p.Rule.CountBy, key, ""), len(p.Rule.Limits) > 0
	if limits {
		page := web.RouteForTenant(web.TenantPath+"/usage/", e.tenant) + url.PathEscape(p.Rule.Policy)
		link("/usage/:policy", "This key", web.AppendQuery(page, web.KeyQuery(key)))
	}
	if e.write && limits {
		link("/overrides/new", "Override", links.Override)
		link("/reset", "Reset", links.Reset)
	}
	if e.write && p.Block == nil {
		link("/blocks/new", "Block", links.Block)
	}
}
