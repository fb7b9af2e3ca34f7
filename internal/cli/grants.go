package cli

import (
	"context"
	"net/http"
	"time"
)

type grantsCommand struct {
	List   grantsList   `cmd:"" help:"List the grants of a tenant, with what is left of each: headgate grants list acme"`
	Get    grantsGet    `cmd:"" help:"Show a grant."`
	Create grantsCreate `cmd:"" help:"Create a grant: headgate grants create acme --policy requests --units 5000 --expires 720h --reason 'invoice 4711'"`
	Void   grantsVoid   `cmd:"" help:"Void a grant, so that it ends at once: headgate grants void acme 0190… --yes"`
}

var grantColumns = []Column{
	{"ID", "id"},
	{"POLICY", "policy"},
	{"LIMIT", "limit"},
	{"KEY", "key"},
	{"UNITS", "units"},
	{"LEFT", "left"},
	{"ACTIVE", "active"},
	{"EXPIRES", "expires_at"},
	{"REASON", "reason"},
}

type grantsList struct {
	Connection
	ofTenant
	Policy string `setting:"false" placeholder:"SLUG" help:"Only grants of this policy."`
	Limit  int    `setting:"false" help:"How many rows. Default: all."`
}

// Run lists grants.
func (l grantsList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, path("tenants", l.Tenant, "grants"), map[string]string{"policy": l.Policy}, l.Limit, grantColumns)
}

type grantsGet struct {
	Connection
	ofTenant
	ID string `arg:"" help:"The grant's id, from headgate grants list."`
}

// Run shows a grant.
func (g grantsGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	return c.show(ctx, path("tenants", g.Tenant, "grants", g.ID), grantColumns...)
}

type grantsCreate struct {
	writing
	ofTenant
	Policy    string            `required:"" setting:"false" placeholder:"SLUG" help:"The policy of the tenant's plan whose limit is topped up."`
	LimitName string            `aliases:"limit" setting:"false" placeholder:"NAME" help:"The name of the limit, a fixed_window, like l1. Default: the only limit of the policy."`
	Key       map[string]string `setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"A value of the only key that can spend the units; may be repeated. Default: all keys of the policy share them."`
	Units     int64             `required:"" setting:"false" help:"How many units beyond the quota."`
	Expires   time.Duration     `required:"" setting:"false" help:"After how long it ends, like 720h. What is left then is lost."`
	Reason    string            `required:"" setting:"false" help:"Why. The tenant sees it in its list of grants and in its audit log."`
}

// Run creates a grant.
func (n grantsCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	body := object{"policy": n.Policy, "units": n.Units, "reason": n.Reason}
	body.set("limit", n.LimitName)
	if len(n.Key) > 0 {
		body["key"] = n.Key
	}
	if err := body.expires(n.Expires); err != nil {
		return err
	}
	return c.create(ctx, path("tenants", n.Tenant, "grants"), body, grantColumns...)
}

type grantsVoid struct {
	writing
	ofTenant
	ID  string `arg:"" help:"The grant's id, from headgate grants list."`
	Yes bool   `setting:"false" help:"Do it without a question."`
}

// Run voids a grant.
func (d grantsVoid) Run(ctx context.Context, t Terminal) error {
	if err := confirmed(d.Yes, d.DryRun, "voids grant "+d.ID); err != nil {
		return err
	}
	c, err := d.client(t)
	if err != nil {
		return err
	}
	_, sent, err := c.write(ctx, http.MethodDelete, path("tenants", d.Tenant, "grants", d.ID), nil, "")
	if sent {
		c.terminal.say("grant %s is void", plain(d.ID))
	}
	return err
}
