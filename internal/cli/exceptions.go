package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

type overridesCommand struct {
	List   overridesList   `cmd:"" help:"List the overrides of a tenant: headgate overrides list acme"`
	Get    overridesGet    `cmd:"" help:"Show an override."`
	Create overridesCreate `cmd:"" help:"Create an override: headgate overrides create acme --policy login --attribute user --value u1 --factor 2 --reason 'load test' --expires 24h"`
	Set    overridesSet    `cmd:"" help:"Change or prolong an override: headgate overrides set acme 0190… --expires 48h"`
	Delete overridesDelete `cmd:"" help:"Delete an override, so that it ends at once."`
}

var overrideColumns = []Column{
	{"ID", "id"},
	{"POLICY", "policy"},
	{"ATTRIBUTE", "attribute"},
	{"VALUE", "value"},
	{"PREFIX", "prefix"},
	{"FACTOR", "factor"},
	{"LIMITS", "limits"},
	{"ACTIVE", "active"},
	{"EXPIRES", "expires_at"},
	{"REASON", "reason"},
}

// ofTenant has the flag that selects the tenant of a command.
type ofTenant struct {
	Tenant string `arg:"" help:"Slug of the tenant."`
}

type overridesList struct {
	Connection
	ofTenant
	Policy string `setting:"false" placeholder:"SLUG" help:"Only overrides of this policy."`
	Limit  int    `setting:"false" help:"How many rows. Default: all."`
}

// Run lists overrides.
func (l overridesList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, path("tenants", l.Tenant, "overrides"), map[string]string{"policy": l.Policy}, l.Limit, overrideColumns)
}

type overridesGet struct {
	Connection
	ofTenant
	ID string `arg:"" help:"The override's id, from headgate overrides list."`
}

// Run shows an override.
func (g overridesGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	return c.show(ctx, path("tenants", g.Tenant, "overrides", g.ID), overrideColumns...)
}

// overrideFields has the flags that select the keys of an override, and set its limits and its
// expiry time.
type overrideFields struct {
	Attribute string            `setting:"false" help:"One of the attributes that the policy counts by. Default: all keys of the tenant."`
	Value     string            `setting:"false" help:"Value of the attribute."`
	Prefix    string            `setting:"false" help:"Prefix of the value; for ip, a network."`
	Factor    string            `setting:"false" help:"Factor of all quotas, like 2.5."`
	Quota     map[string]int64  `setting:"false" mapsep:"none" placeholder:"LIMIT=N" help:"Quota of a limit; may be repeated."`
	Burst     map[string]int64  `setting:"false" mapsep:"none" placeholder:"LIMIT=N" help:"Burst of a limit; may be repeated."`
	Window    map[string]string `setting:"false" mapsep:"none" placeholder:"LIMIT=1m" help:"Window of a limit; may be repeated."`
}

// apply sets the members of an override for which a flag was given. limits are the current
// limits of the override.
func (f overrideFields) apply(body object, limits []object) error {
	body.set("attribute", f.Attribute)
	body.set("value", f.Value)
	body.set("prefix", f.Prefix)
	if f.Factor != "" {
		if _, err := strconv.ParseFloat(f.Factor, 64); err != nil {
			return usage("--factor: %q is not a number", f.Factor)
		}
		body["factor"] = json.Number(f.Factor)
	}
	if limits, changed := f.limits(limits); changed {
		body["limits"] = limits
	}
	return nil
}

// limits returns limits with the numbers in the flags. It returns false if there are no such
// flags.
func (f overrideFields) limits(limits []object) ([]object, bool) {
	named := map[string]object{}
	for _, l := range limits {
		named[fmt.Sprint(l["name"])] = l
	}
	at := func(name string) object {
		if named[name] == nil {
			named[name] = object{"name": name}
		}
		return named[name]
	}
	for name, v := range f.Quota {
		at(name)["quota"] = v
	}
	for name, v := range f.Burst {
		at(name)["burst"] = v
	}
	for name, v := range f.Window {
		at(name)["window"] = v
	}
	var list []object
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list = append(list, named[name])
	}
	return list, len(f.Quota)+len(f.Burst)+len(f.Window) > 0
}

type overridesCreate struct {
	writing
	ofTenant
	Policy string `required:"" setting:"false" placeholder:"SLUG" help:"The policy of the tenant's plan."`
	overrideFields
	Reason  string        `required:"" setting:"false" help:"Why, for the audit log."`
	Expires time.Duration `setting:"false" help:"After how long it ends, like 24h. Default: the default of the server."`
}

// Run creates an override.
func (n overridesCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	body := object{"policy": n.Policy, "reason": n.Reason}
	if err := n.apply(body, nil); err != nil {
		return err
	}
	if err := body.expires(n.Expires); err != nil {
		return err
	}
	return c.create(ctx, path("tenants", n.Tenant, "overrides"), body, overrideColumns...)
}

type overridesSet struct {
	writing
	ofTenant
	ID string `arg:"" help:"The override's id, from headgate overrides list."`
	overrideFields
	AllKeys bool          `setting:"false" help:"Apply it to all keys of the tenant."`
	Reason  string        `setting:"false" help:"Why, for the audit log."`
	Expires time.Duration `setting:"false" help:"After how long from now it ends, like 24h."`
}

// Run reads the override, and changes the fields for which a flag was given. If the override
// changes between the two requests, the error is a conflict.
func (s overridesSet) Run(ctx context.Context, t Terminal) error {
	c, err := s.client(t)
	if err != nil {
		return err
	}
	body := object{}
	switch {
	case s.AllKeys && s.Attribute+s.Value+s.Prefix != "":
		return usage("--all-keys excludes --attribute, --value and --prefix")
	case s.AllKeys:
		body["attribute"], body["value"], body["prefix"] = nil, nil, nil
	case s.Prefix != "":
		body["value"] = nil
	case s.Value != "":
		body["prefix"] = nil
	}
	at := path("tenants", s.Tenant, "overrides", s.ID)
	before, err := c.get(ctx, at, nil)
	if err != nil {
		return err
	}
	var is struct {
		Limits []object `json:"limits"`
	}
	if err := json.Unmarshal(before.body, &is); err != nil {
		return fmt.Errorf("read override %s: %w", s.ID, err)
	}
	if err := s.apply(body, is.Limits); err != nil {
		return err
	}
	if _, limits := body["limits"]; s.Factor != "" && !limits {
		body["limits"] = nil
	} else if limits && s.Factor == "" {
		body["factor"] = nil
	}
	body.set("reason", s.Reason)
	if err := body.expires(s.Expires); err != nil {
		return err
	}
	if len(body) == 0 {
		return usage("nothing to change: give a flag such as --expires 24h or --factor 2")
	}
	return c.change(ctx, http.MethodPatch, at, body, before.header.Get("ETag"), overrideColumns...)
}

type overridesDelete struct {
	writing
	ofTenant
	ID string `arg:"" help:"The override's id, from headgate overrides list."`
}

// Run deletes an override.
func (d overridesDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	return c.remove(ctx, path("tenants", d.Tenant, "overrides", d.ID), "", "override "+d.ID)
}

type listsCommand struct {
	List   listsList   `cmd:"" help:"List the entries of a tenant's lists: headgate lists list acme --list deny"`
	Get    listsGet    `cmd:"" help:"Show an entry."`
	Add    listsAdd    `cmd:"" help:"Add an entry: headgate lists add acme deny ip 203.0.113.0/24 --reason scrapers"`
	Delete listsDelete `cmd:"" help:"Delete an entry: headgate lists delete acme 0190…"`
}

var entryColumns = []Column{
	{"ID", "id"},
	{"LIST", "list"},
	{"ATTRIBUTE", "attribute"},
	{"VALUE", "value"},
	{"ACTIVE", "active"},
	{"EXPIRES", "expires_at"},
	{"REASON", "reason"},
}

type listsList struct {
	Connection
	ofTenant
	List  string `setting:"false" enum:",deny,allow" default:"" help:"deny or allow. Default: both."`
	Query string `setting:"false" help:"Part of the value."`
	Limit int    `setting:"false" help:"How many rows. Default: all."`
}

// Run lists entries.
func (l listsList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, path("tenants", l.Tenant, "lists"), map[string]string{"list": l.List, "q": l.Query}, l.Limit, entryColumns)
}

type listsGet struct {
	Connection
	ofTenant
	ID string `arg:"" help:"The entry's id, from headgate lists list."`
}

// Run shows an entry.
func (g listsGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	return c.show(ctx, path("tenants", g.Tenant, "lists", g.ID), entryColumns...)
}

type listsAdd struct {
	writing
	ofTenant
	List      string        `arg:"" enum:"deny,allow" help:"deny or allow."`
	Attribute string        `arg:"" help:"Name of the attribute."`
	Value     string        `arg:"" help:"Value of the attribute; for ip, an address or a network."`
	Reason    string        `setting:"false" help:"Why, for the audit log."`
	Expires   time.Duration `setting:"false" help:"After how long it ends, like 24h. Default: never."`
}

// Run adds an entry.
func (n listsAdd) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	body := object{"list": n.List, "attribute": n.Attribute, "value": n.Value}
	body.set("reason", n.Reason)
	if err := body.expires(n.Expires); err != nil {
		return err
	}
	return c.create(ctx, path("tenants", n.Tenant, "lists"), body, entryColumns...)
}

type listsDelete struct {
	writing
	ofTenant
	ID string `arg:"" help:"The entry's id, from headgate lists list."`
}

// Run deletes an entry.
func (d listsDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	return c.remove(ctx, path("tenants", d.Tenant, "lists", d.ID), "", "list entry "+d.ID)
}
