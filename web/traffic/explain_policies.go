package traffic

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// An explainer draws the parts of an explanation.
type explainer struct {
	w      *pages
	c      echo.Context
	x      *enforcement.Explanation
	tenant string // slug
	now    time.Time
	write  bool // the visitor may set exceptions
}

// page is the address of a page of the tenant, "" if there is none, or if it is
// not for the visitor.
func (e *explainer) page(below string) string {
	if !e.w.CanOpen(e.c, web.TenantPath+below) {
		return ""
	}
	return web.RouteForTenant(web.TenantPath+below, e.tenant)
}

// list is the entry that answered; nil: none did.
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
		v.Ends = views.NewMoment(roundedUp(d.List.Until), e.now)
	}
	return v
}

// policy is one policy of the plan.
func (e *explainer) policy(p *enforcement.PolicyExplanation) views.ExplainedPolicy {
	r := p.Rule
	v := views.ExplainedPolicy{
		Slug: r.Policy, Applies: p.Applies, Because: web.Sentence(p.Because(&e.x.Decision)), ReplacedBy: p.ReplacedBy,
		Method: "every method", Path: "every path", Mode: string(r.Mode),
	}
	switch p.Why {
	case enforcement.WhyApplies:
		v.Badge, v.Tone = "applies", "good"
		if r.Mode == enforcement.PolicyShadow {
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
	for _, name := range sortedNames(r.Attributes) {
		v.Attributes = append(v.Attributes, views.KeyFact{Name: name, Value: r.Attributes[name]})
	}
	for _, part := range r.KeyOf(e.x.Decision.Check, nil) {
		v.Key = append(v.Key, views.KeyFact{Name: part.Name, Value: part.Value, Missing: part.Missing})
	}
	e.exceptions(p, &v)
	refusing := map[string]bool{}
	for i := range e.x.Decision.Limits {
		if l := &e.x.Decision.Limits[i]; l.Rule == r && !l.Allowed {
			refusing[l.Limit.Name] = true
		}
	}
	for _, now := range p.Limits {
		most := web.Capacity(now.Limit)
		l := views.ExplainedLimit{
			Name: now.Limit.Name, Aloud: plans.Describe(now.Limit.Limit), Used: max(0, most-now.Remaining), Most: most,
			Left:  views.Count(now.Remaining),
			Holds: views.Count(most), Refuses: refusing[now.Limit.Name], Remaining: now.Remaining, ResetMillis: now.ResetAfter,
		}
		if l.Tone = "good"; l.Refuses || now.Remaining == 0 {
			l.Tone = "bad"
		} else if now.Remaining*4 < most {
			l.Tone = "warn"
		}
		if now.LeasedElsewhere > 0 {
			l.Leased = fmt.Sprintf("Leased: this node may deny up to %s units early, which other nodes hold; never more than the limit is allowed.",
				views.Count(now.LeasedElsewhere).Text)
		}
		if now.ResetAfter > 0 {
			l.Reset = "as new in " + waitWords(time.Duration(now.ResetAfter)*time.Millisecond)
		}
		v.Limits = append(v.Limits, l)
	}
	return v
}

// exceptions adds what is set for the key, and where it can be changed.
func (e *explainer) exceptions(p *enforcement.PolicyExplanation, v *views.ExplainedPolicy) {
	key := url.Values{}
	var attribute, value string
	for _, name := range p.Rule.CountBy {
		name = strings.TrimSuffix(name, "/64")
		for _, a := range e.x.Decision.Check.Attributes {
			if a.Name == name && a.Value != "" {
				key.Set(keyPrefix+name, a.Value)
				if attribute == "" {
					attribute, value = name, a.Value
				}
			}
		}
	}
	of := func(below string, also ...string) string {
		page := e.page(below)
		if page == "" {
			return ""
		}
		q := url.Values{"policy": {p.Rule.Policy}}
		for name, values := range key {
			q[name] = values
		}
		for i := 0; i+1 < len(also); i += 2 {
			q.Set(also[i], also[i+1])
		}
		return page + "?" + q.Encode()
	}
	if o := p.Override; o != nil {
		v.Override, v.OverrideURL = "in force", of("/overrides")
		v.OverrideEnds = views.NewMoment(roundedUp(o.Until), e.now)
	}
	if b := p.Block; b != nil {
		v.Block, v.BlockURL, v.BlockReason = "in force", e.page("/blocks"), b.Reason
		v.BlockEnds = views.NewMoment(roundedUp(b.Until), e.now)
	}
	if !p.Matches {
		return
	}
	link := func(text, address string) {
		if address != "" {
			v.Links = append(v.Links, views.Link{Text: text, URL: address})
		}
	}
	if page := e.page("/usage/:policy"); page != "" && len(p.Rule.Limits) > 0 {
		address := strings.TrimSuffix(page, ":policy") + url.PathEscape(p.Rule.Policy)
		if len(key) > 0 {
			address += "?" + key.Encode()
		}
		link("This key", address)
	}
	if !e.write {
		return
	}
	if len(p.Rule.Limits) > 0 {
		if attribute != "" {
			link("Override", of("/overrides/new", "attribute", attribute, "value", value))
		} else {
			link("Override", of("/overrides/new"))
		}
		link("Reset", of("/reset"))
	}
	if p.Block == nil {
		link("Block", of("/blocks/new"))
	}
}
