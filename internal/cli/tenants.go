package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

type tenantsCommand struct {
	List   tenantsList   `cmd:"" help:"List tenants: headgate tenants list --plan pro"`
	Get    tenantsGet    `cmd:"" help:"Show a tenant: headgate tenants get acme -o yaml"`
	Create tenantsCreate `cmd:"" help:"Create a tenant: headgate tenants create acme --name 'Acme Inc.' --plan pro"`
	Set    tenantsSet    `cmd:"" help:"Change some fields of a tenant: headgate tenants set acme --status suspended"`
	Delete tenantsDelete `cmd:"" help:"Delete a tenant with its keys, overrides and lists: headgate tenants delete acme --yes"`
}

var tenantColumns = []Column{
	{"SLUG", "slug"},
	{"NAME", "tenant.name"},
	{"PLAN", "tenant.plan"},
	{"STATUS", "tenant.status"},
	{"NO POLICY", "tenant.no_policy"},
	{"UPDATED", "updated_at"},
}

type tenantsList struct {
	Connection
	Query  string `setting:"false" help:"Part of the slug or the name."`
	Status string `setting:"false" enum:",active,suspended" default:"" help:"active or suspended."`
	Plan   string `setting:"false" placeholder:"SLUG" help:"Only tenants on this plan."`
	Limit  int    `setting:"false" help:"How many rows. Default: all."`
}

// Run lists tenants.
func (l tenantsList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, path("tenants"), map[string]string{"q": l.Query, "status": l.Status, "plan": l.Plan}, l.Limit, tenantColumns)
}

// rows prints a list that the API returns for path. filters are query parameters. Parameters with
// an empty value are left out.
func (c Connection) rows(ctx context.Context, t Terminal, path string, filters map[string]string, limit int, columns []Column) error {
	cl, err := c.client(t)
	if err != nil {
		return err
	}
	if limit < 0 {
		return usage("--limit: must not be negative")
	}
	query := url.Values{}
	for name, value := range filters {
		if value != "" {
			query.Set(name, value)
		}
	}
	document, err := cl.list(ctx, path, query, limit)
	if err != nil {
		return err
	}
	return cl.output.rows(t, document, "data", columns...)
}

type tenantsGet struct {
	Connection
	Tenant string `arg:"" help:"Slug of the tenant."`
}

// Run shows a tenant.
func (g tenantsGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	return c.show(ctx, path("tenants", g.Tenant), tenantColumns...)
}

// tenantFields has the flags for the fields of a tenant.
type tenantFields struct {
	Plan             *string `setting:"false" placeholder:"SLUG" help:"Plan of the tenant; empty for none."`
	Status           string  `setting:"false" enum:",active,suspended" default:"" help:"active or suspended."`
	TimeZone         string  `setting:"false" placeholder:"ZONE" help:"IANA name of the time zone, such as Europe/Berlin."`
	BillingAnchorDay int     `setting:"false" help:"Day of the month on which the billing period begins."`
	NoPolicy         string  `setting:"false" enum:",allow,deny" default:"" help:"Decision for a check that matches no policy: allow or deny."`
	RequireRoute     *bool   `setting:"false" negatable:"" help:"Checks must have a method and a path. Default: they must."`
	RedactValues     *bool   `setting:"false" negatable:"" help:"Do not store attribute values of denied checks."`
	MaxKeys          int64   `setting:"false" help:"Bound of live counters in Redis."`
	SampleAllowed    *int64  `setting:"false" placeholder:"N" help:"Record one in N allowed requests with its explanation; 0: none."`
	Trace            *bool   `setting:"false" negatable:"" help:"Trace requests for previews of drafts. Default: they are traced."`
}

// apply sets the fields for which a flag was given in the document of a tenant.
func (f tenantFields) apply(document map[string]any) {
	o := object(document)
	o.set("status", f.Status)
	o.set("time_zone", f.TimeZone)
	o.set("no_policy", f.NoPolicy)
	if f.Plan != nil {
		o["plan"] = nil
		o.set("plan", *f.Plan)
	}
	if f.BillingAnchorDay != 0 {
		o["billing_anchor_day"] = f.BillingAnchorDay
	}
	if f.RequireRoute != nil {
		o["require_route"] = *f.RequireRoute
	}
	if f.RedactValues != nil {
		o["redact_values"] = *f.RedactValues
	}
	if f.MaxKeys != 0 {
		o["max_keys"] = f.MaxKeys
	}
	if f.SampleAllowed != nil {
		o["sample_allowed"] = *f.SampleAllowed
	}
	if f.Trace != nil {
		o["no_trace"] = !*f.Trace
	}
}

type tenantsCreate struct {
	writing
	Tenant string `arg:"" help:"Slug of the new tenant."`
	Name   string `required:"" setting:"false" help:"Name of the tenant."`
	tenantFields
}

// Run creates a tenant.
func (n tenantsCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	document := object{"name": n.Name}
	n.apply(document)
	return c.create(ctx, path("tenants"), object{"slug": n.Tenant, "tenant": document}, tenantColumns...)
}

type tenantsSet struct {
	writing
	Tenant string `arg:"" help:"Slug of the tenant."`
	Name   string `setting:"false" help:"Name of the tenant."`
	tenantFields
}

// Run reads the tenant, changes the fields for which a flag was given, and writes the tenant.
// If the tenant changes between the two requests, the error is a conflict.
func (s tenantsSet) Run(ctx context.Context, t Terminal) error {
	c, err := s.client(t)
	if err != nil {
		return err
	}
	at := path("tenants", s.Tenant)
	before, err := c.get(ctx, at, nil)
	if err != nil {
		return err
	}
	var is struct {
		Tenant map[string]any `json:"tenant"`
	}
	if err := json.Unmarshal(before.body, &is); err != nil || is.Tenant == nil {
		return fmt.Errorf("read tenant %s: the answer has no tenant", s.Tenant)
	}
	object(is.Tenant).set("name", s.Name)
	s.apply(is.Tenant)
	if is.Tenant["plan"] == nil {
		is.Tenant["plan"] = nil // a PUT request must contain the member; null means no plan
	}
	return c.change(ctx, http.MethodPut, at, is.Tenant, before.header.Get("ETag"), tenantColumns...)
}

type tenantsDelete struct {
	writing
	Tenant string `arg:"" help:"Slug of the tenant."`
	Yes    bool   `setting:"false" help:"Delete it. It cannot be undone."`
}

// Run deletes a tenant.
func (d tenantsDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	if err := confirmed(d.Yes, d.DryRun, "deletes tenant "+d.Tenant+" with its keys, overrides and lists"); err != nil {
		return err
	}
	return c.removeRead(ctx, path("tenants", d.Tenant), "tenant "+d.Tenant)
}

// removeRead reads the ETag of an object and then deletes the object with If-Match. If the
// object changes between the two requests, the API returns a conflict.
func (c *client) removeRead(ctx context.Context, at, what string) error {
	a, err := c.get(ctx, at, nil)
	if err != nil {
		return err
	}
	return c.remove(ctx, at, a.header.Get("ETag"), what)
}
