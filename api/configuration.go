package api

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/configuration"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// GetConfiguration is GET /v1/configuration.
func (a *API) GetConfiguration(ctx context.Context, _ GetConfigurationRequestObject) (GetConfigurationResponseObject, error) {
	d, err := a.cfg.Configuration.Export(ctx)
	if err != nil {
		return nil, err
	}
	documents, members := make(map[string]PlanDocument, len(d.Plans)), make(map[string]ConfiguredTenant, len(d.Tenants))
	for slug, p := range d.Plans {
		if documents[slug], err = p.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	for slug, t := range d.Tenants {
		members[slug] = showConfiguredTenant(t)
	}
	return GetConfiguration200JSONResponse{Plans: &documents, Tenants: &members}, nil
}

func showConfiguredTenant(t configuration.Tenant) ConfiguredTenant {
	overrides, entries := []ConfiguredOverride{}, []ConfiguredListEntry{}
	for _, o := range t.Overrides {
		factor, limits := showNumbers(o.Factor, o.Limits)
		overrides = append(overrides, ConfiguredOverride{
			Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Factor: factor, Limits: limits, Reason: o.Reason,
			ExpiresAt: Instant{o.ExpiresAt},
		})
	}
	for _, e := range t.Lists {
		entries = append(entries, ConfiguredListEntry{
			List: ListName(e.List), Attribute: e.Attribute, Value: e.Value, Reason: e.Reason, ExpiresAt: Instant{e.ExpiresAt},
		})
	}
	d := showTenantDocument(t.Document)
	return ConfiguredTenant{
		Name: d.Name, Status: d.Status, Plan: d.Plan, TimeZone: d.TimeZone, BillingAnchorDay: d.BillingAnchorDay, NoPolicy: d.NoPolicy,
		RedactValues: d.RedactValues, RequireRoute: d.RequireRoute, MaxKeys: d.MaxKeys,
		SampleAllowed: d.SampleAllowed, NoTrace: d.NoTrace, Overrides: &overrides, Lists: &entries,
	}
}

// ApplyConfiguration is POST /v1/configuration/apply.
func (a *API) ApplyConfiguration(ctx context.Context, r ApplyConfigurationRequestObject) (ApplyConfigurationResponseObject, error) {
	d, err := readConfiguration(*r.Body)
	if err != nil {
		return nil, err
	}
	result, err := a.cfg.Configuration.Apply(ctx, d, configuration.Options{DryRun: r.Params.DryRun, Prune: r.Params.Prune})
	if err != nil {
		return nil, err
	}
	if !r.Params.DryRun && len(result.Changes) > 0 {
		a.cfg.Changed(ctx)
	}
	out := ApplyConfiguration200JSONResponse{
		DryRun: r.Params.DryRun, Changes: showChanges(result.Changes), Unmanaged: showChanges(result.Unmanaged),
		Expired: append([]string{}, result.Expired...), Previews: []PlanPreview{},
	}
	for _, p := range result.Previews {
		out.Previews = append(out.Previews, showPreview(p))
	}
	return out, nil
}

// readConfiguration converts the JSON form of a configuration to a configuration.Document. Its
// error contains the faults of all documents in the configuration.
func readConfiguration(c Configuration) (configuration.Document, error) {
	var d configuration.Document
	var f problem.Fields
	note := func(at string, err error) error {
		p := asProblem(err)
		switch {
		case err == nil:
			return nil
		case p.Kind == problem.Malformed:
			return under(at, err)
		}
		f.AddAll(at, p.Fields)
		return nil
	}
	if c.Plans != nil {
		d.Plans = make(map[string]plans.Document, len(*c.Plans))
		for _, slug := range slices.Sorted(maps.Keys(*c.Plans)) {
			document, err := plans.Parse((*c.Plans)[slug])
			if err := note("/plans/"+problem.Escape(slug), err); err != nil {
				return d, err
			}
			d.Plans[slug] = document
		}
	}
	if c.Tenants != nil {
		d.Tenants = make(map[string]configuration.Tenant, len(*c.Tenants))
		for _, slug := range slices.Sorted(maps.Keys(*c.Tenants)) {
			t, err := readConfiguredTenant((*c.Tenants)[slug])
			if err := note("/tenants/"+problem.Escape(slug), err); err != nil {
				return d, err
			}
			d.Tenants[slug] = t
		}
	}
	return d, f.Err()
}

func readConfiguredTenant(c ConfiguredTenant) (t configuration.Tenant, err error) {
	t.Document = tenantDocument(TenantDocument{
		Name: c.Name, Status: c.Status, Plan: c.Plan, TimeZone: c.TimeZone, BillingAnchorDay: c.BillingAnchorDay, NoPolicy: c.NoPolicy,
		RedactValues: c.RedactValues, RequireRoute: c.RequireRoute, MaxKeys: c.MaxKeys,
		SampleAllowed: c.SampleAllowed, NoTrace: c.NoTrace,
	})
	var f problem.Fields
	if c.Overrides != nil {
		t.Overrides = make([]exceptions.NewOverride, len(*c.Overrides))
		for i, o := range *c.Overrides {
			t.Overrides[i], err = newOverride(NewOverride(o))
			if err != nil {
				f.AddAll(fmt.Sprintf("/overrides/%d", i), asProblem(err).Fields)
			}
		}
	}
	if c.Lists != nil {
		t.Lists = make([]exceptions.NewEntry, len(*c.Lists))
		for i, e := range *c.Lists {
			t.Lists[i] = exceptions.NewEntry{
				List: exceptions.List(e.List), Attribute: e.Attribute, Value: e.Value, Reason: e.Reason, ExpiresAt: e.ExpiresAt.Time,
			}
		}
	}
	return t, f.Err()
}

func showPreview(p preview.Preview) PlanPreview {
	out := PlanPreview{
		Plan: p.Plan.Slug, From: Instant{p.From}, To: Instant{p.To}, Clipped: p.Clipped, Tenants: p.Tenants,
		Requests: p.Requests, Denied: p.Refused,
		LeftOut: p.Left, Joined: p.Joined, WouldDenyAtLeast: p.AtLeast, Replay: showReplay(p.Replay),
		Policies: make([]PolicyPreview, len(p.Policies)),
	}
	if p.Total != nil {
		out.WouldDeny = &DenialBounds{Low: p.Total.Low, High: p.Total.High}
	}
	for i, policy := range p.Policies {
		row := PolicyPreview{
			Policy: policy.Slug, Change: PolicyPreviewChange(policy.Change), Certainty: PolicyPreviewCertainty(policy.Certainty),
			Why: policy.Why, Requests: policy.Requests, Notes: policy.Notes,
		}
		if !policy.From.Equal(p.From) {
			row.From = Instant{policy.From}
		}
		if q := policy.Replay; q != nil {
			row.Replay = &PolicyReplay{
				Keys: q.Keys, Requests: q.Requests, LeftOut: q.LeftOut, All: q.All, Denied: q.Published, WouldDeny: q.Draft, Text: q.String(),
				Without: q.Without,
			}
		}
		if policy.Published != nil {
			row.Denied = &policy.Published.Refused
		}
		if policy.Draft != nil {
			row.WouldDeny = &DenialBounds{Low: policy.Draft.Low, High: policy.Draft.High}
		}
		out.Policies[i] = row
	}
	return out
}

func showReplay(r *preview.Replay) *PreviewReplay {
	if r == nil {
		return nil
	}
	out := &PreviewReplay{
		From: Instant{r.From}, To: Instant{r.To}, Tenants: r.Tenants, All: r.All, Requests: r.Requests, Denied: r.Published, WouldDeny: r.Draft,
		Without: r.Without, Points: make([]ReplayPoint, len(r.Points)),
	}
	for i, p := range r.Points {
		out.Points[i] = ReplayPoint{At: Instant{p.At}, Requests: p.Requests, Denied: p.Published, WouldDeny: p.Draft}
	}
	return out
}
