package admin

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/export"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// auditGroups are the choices of the filter for kinds of actions. The kind of an action is the
// part of its name before the dot.
var auditGroups = []views.Option{
	{Value: "", Label: "Everything"},
	{Value: "plan", Label: "Plans"},
	{Value: "tenant", Label: "Tenants"},
	{Value: "key", Label: "API keys"},
	{Value: "override", Label: "Overrides"},
	{Value: "list_entry", Label: "List entries"},
	{Value: "block", Label: "Blocks"},
	{Value: "grant", Label: "Grants"},
	{Value: "alert_rule", Label: "Alert rules"},
	{Value: "alert_channel", Label: "Alert channels"},
	{Value: "alert_delivery", Label: "Alert messages"},
	{Value: "alert_maintenance", Label: "Maintenance windows"},
	{Value: "counter", Label: "Resets of counters"},
	{Value: "shared_link", Label: "Shared links"},
	{Value: "saved_filter", Label: "Shared filters"},
	{Value: "lease", Label: "Leases of concurrency limits"},
	{Value: "reservation", Label: "Reservations"},
	{Value: "user", Label: "People"},
	{Value: "invitation", Label: "Invitations"},
	{Value: "session", Label: "Sign-ins"},
	{Value: "second_factor", Label: "Second factors"},
	{Value: "access", Label: "Denied accesses"},
	{Value: "operator_key", Label: "Operator keys"},
	{Value: "setting", Label: "Settings"},
	{Value: "redis", Label: "Lost counters"},
	{Value: "demo", Label: "Demo data"},
}

// operatorOnly contains the kinds of actions that never belong to a tenant.
var operatorOnly = map[string]bool{"plan": true, "operator_key": true, "setting": true, "redis": true, "demo": true}

// auditRanges are the periods that the page offers. The first one is unlimited.
var auditRanges = []struct {
	name, label string
	length      time.Duration
}{
	{"", "All time", 0},
	{"24h", "The last 24 hours", web.Day},
	{"7d", "The last 7 days", 7 * web.Day},
	{"30d", "The last 30 days", 30 * web.Day},
	{"90d", "The last 90 days", 90 * web.Day},
}

// An auditReading is one request for entries of the audit log. It has the filters, and the rules
// for what the reader may see.
type auditReading struct {
	w      *pages
	c      echo.Context
	base   string     // path of the page: "/audit", or "/tenants/acme/audit"
	values url.Values // the filters in the address, without the cursor
	filter audit.Filter
	faults map[string]string // by field
	// masked is set if the reader is a member of a tenant. It hides the data of the operator's
	// people, which such a reader must not see.
	masked  *audit.TenantView
	tenants map[string]string // names of tenants by id; "" if the tenant is deleted
}

// tenantView returns the view that hides from a member of a tenant which of the operator's people
// made a change. It returns nil for the operator's people, who may see everything.
func (w *pages) tenantView(c echo.Context) *audit.TenantView {
	tenantID := web.VisitorOf(c).User.TenantID
	if tenantID == "" {
		return nil
	}
	return audit.NewTenantView(w.cfg.Audit, tenantID, func(ctx context.Context, user string) (bool, error) {
		return w.cfg.People.IsMember(ctx, tenantID, user)
	})
}

// auditOf reads the filters from the address.
func (w *pages) auditOf(c echo.Context) (*auditReading, error) {
	r := &auditReading{
		w: w, c: c, base: "/audit", values: url.Values{}, faults: map[string]string{}, tenants: map[string]string{},
	}
	if t := web.TenantOf(c); t.ID != "" {
		r.base, r.filter.TenantID = web.RouteForTenant(web.TenantPath+"/audit", t.Slug), t.ID
		r.masked = w.tenantView(c)
	}
	q := c.QueryParams()
	for _, name := range []string{"actor", "kind", "action", "tenant", "object", "range", "from", "to", "tz"} {
		// Stored entries have the form that audit.Clean returns, so the filter needs it too.
		if value := audit.Clean(strings.TrimSpace(q.Get(name))); value != "" {
			r.values.Set(name, value)
		}
	}
	r.filter.Group, r.filter.Action, r.filter.Named = r.values.Get("kind"), r.values.Get("action"), r.values.Get("object")
	r.filter.After = web.After(c)
	r.readTime()
	if err := r.readTenant(); err != nil {
		return nil, err
	}
	return r, r.readActor()
}

func (r *auditReading) readTime() {
	now := r.w.Now()
	for _, p := range auditRanges {
		if p.name != "" && p.name == r.values.Get("range") {
			r.filter.From = now.Add(-p.length)
		}
	}
	if r.values.Get("from") == "" && r.values.Get("to") == "" {
		return
	}
	var s web.TimeRange
	if s.SetCustom(r.values, now); s.Fault != "" {
		r.faults["time"] = s.Fault
		r.values.Del("from")
		r.values.Del("to")
		return
	}
	r.values.Del("range")
	r.filter.From, r.filter.To = s.From, s.To
}

// readTenant reads the filter for the tenant, which only the operator's people have.
func (r *auditReading) readTenant() error {
	ref := r.values.Get("tenant")
	if web.TenantOf(r.c).ID != "" {
		r.values.Del("tenant")
		return nil
	}
	if ref == "" {
		return nil
	}
	t, err := r.w.cfg.Tenants.Tenant(r.c.Request().Context(), ref)
	switch {
	case problem.Is(err, problem.NotFound) && uuid.Validate(ref) == nil:
		r.filter.TenantID = ref // entries of a deleted tenant stay
	case problem.Is(err, problem.NotFound), problem.Is(err, problem.Invalid):
		r.faults["tenant"] = "No tenant has this slug. For a deleted tenant, enter its ID. This filter is not applied."
		r.values.Del("tenant")
	case err != nil:
		return err
	default:
		r.filter.TenantID = t.ID
	}
	return nil
}

// readActor reads the filter for the actor. A member of a tenant can only select another member.
// With free text, a member could try names and so find out those of the operator's people.
func (r *auditReading) readActor() error {
	actor := r.values.Get("actor")
	if actor == "" || r.masked == nil {
		r.filter.Actor = actor
		return nil
	}
	own, err := r.masked.Owns(r.c.Request().Context(), audit.Actor{Kind: "user", ID: actor})
	if err != nil {
		return err
	}
	if !own {
		r.faults["actor"] = "No member has this ID."
		actor = uuid.Nil.String()
	}
	r.filter.Actor = actor
	return nil
}

// auditCSV is GET /audit.csv and GET /tenants/{tenant}/audit.csv.
func (w *pages) auditCSV(c echo.Context) error {
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	if len(r.faults) > 0 {
		return w.renderAudit(c, http.StatusUnprocessableEntity)
	}
	file := export.Audit(c.Request().Context(), w.cfg.Audit, r.filter, r.masked, w.Now())
	file.MaxRows = w.cfg.AuditLines
	return file.Serve(c.Response(), w.Log().With("request_id", web.RequestID(c)))
}

// address returns the URL of a page with the current filters. changed replaces some of them; the
// value "" removes a filter. The URL has no cursor.
func (r *auditReading) address(path string, changed map[string]string) string {
	v := maps.Clone(r.values)
	for name, value := range changed {
		if v.Del(name); value != "" {
			v.Set(name, value)
		}
	}
	return web.AppendQuery(path, v)
}

func (r *auditReading) ranges() views.Ranges {
	v := views.Ranges{Action: r.base, Error: r.faults["time"], Shown: auditRanges[0].label}
	for _, p := range auditRanges {
		link := views.RangeLink{Text: p.name, Label: p.label, URL: r.address(r.base, map[string]string{"range": p.name, "from": "", "to": ""})}
		if p.name == "" {
			link.Text = "All"
		}
		if link.Current = p.name == r.values.Get("range") && r.values.Get("from") == "" && v.Error == ""; link.Current {
			v.Shown = p.label
		}
		v.Presets = append(v.Presets, link)
	}
	for name := range r.values {
		if name != "range" && name != "from" && name != "to" && name != "tz" {
			v.Hidden = append(v.Hidden, views.Hidden{Name: name, Value: r.values.Get(name)})
		}
	}
	from, to := r.filter.From, r.filter.To
	if to.IsZero() {
		to = r.w.Now()
	}
	if from.IsZero() {
		from = to.Add(-7 * web.Day)
	}
	zone := views.Zone(r.c.Request().Context())
	v.From, v.To, v.Zone = from.In(zone).Format(web.RangeForm), to.In(zone).Format(web.RangeForm), zone.String()
	v.Hidden = append(v.Hidden, views.Hidden{Name: "tz", Value: v.Zone})
	if r.values.Get("from") != "" {
		v.Shown = web.SpanWords(from, to, zone)
	}
	return v
}

// suggested is the maximum number of values of each kind that a filter suggests.
const suggested = 200

// names returns the slugs of the tenants, and in all the slugs of tenants and plans together.
func (r *auditReading) names(ctx context.Context) (ofTenants, all []string, err error) {
	list, err := r.w.cfg.Tenants.Tenants(ctx, tenants.Filter{Limit: suggested})
	if err != nil {
		return nil, nil, err
	}
	for _, t := range list {
		ofTenants = append(ofTenants, t.Slug)
	}
	slices.Sort(ofTenants)
	all = slices.Clone(ofTenants)
	if s := r.w.cfg.Snapshot(); s != nil {
		for p := range s.Plans() {
			all = append(all, p.Slug)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return ofTenants, all[:min(suggested, len(all))], nil
}

// people returns the email addresses of the operator's people.
func (r *auditReading) people(ctx context.Context) (emails []string, err error) {
	list, err := r.w.cfg.People.Users(ctx, web.VisitorOf(r.c).Principal(), "", accounts.UserFilter{Limit: suggested})
	for _, u := range list {
		emails = append(emails, u.Email)
	}
	return emails, err
}

func (r *auditReading) filters(ctx context.Context) (views.Filters, error) {
	kind := views.FilterField{Name: "kind", Label: "What"}
	actor := views.FilterField{Name: "actor", Label: "Who", Placeholder: "ann@, or an ID"}
	fields := []views.FilterField{{Name: "object", Label: "Of", Placeholder: "pro, or an ID"}}
	var err error
	if web.TenantOf(r.c).ID == "" {
		kind.Options = auditGroups
		tenant := views.FilterField{Name: "tenant", Label: "Tenant", Placeholder: "acme"}
		if tenant.List, fields[0].List, err = r.names(ctx); err != nil {
			return views.Filters{}, err
		}
		fields = append(fields, tenant)
	} else {
		kind.Options = slices.DeleteFunc(slices.Clone(auditGroups), func(o views.Option) bool { return operatorOnly[o.Value] })
	}
	if r.masked == nil && web.May(r.c, accounts.PeopleRead) {
		if actor.List, err = r.people(ctx); err != nil {
			return views.Filters{}, err
		}
	}
	if r.masked != nil {
		members, err := r.w.cfg.People.Users(ctx, web.VisitorOf(r.c).Principal(), web.TenantOf(r.c).ID, accounts.UserFilter{Limit: 200})
		if err != nil {
			return views.Filters{}, err
		}
		actor.Options = []views.Option{{Label: "All"}}
		for _, m := range members {
			actor.Options = append(actor.Options, views.Option{Value: m.ID, Label: m.Email})
		}
	}
	without := func(name, value string) string { return r.address(r.base, map[string]string{name: value}) }
	f := web.Filters(r.c, r.base, append([]views.FilterField{kind, actor}, fields...), r.faults, r.values.Get, without)
	f.ClearURL = r.base
	if action := r.values.Get("action"); action != "" {
		f.Chips = append(f.Chips, views.Chip{Name: "Action", Value: action, RemoveURL: without("action", "")})
	}
	for _, name := range []string{"action", "range", "from", "to", "tz"} {
		if value := r.values.Get(name); value != "" {
			f.Hidden = append(f.Hidden, views.Hidden{Name: name, Value: value})
		}
	}
	return f, nil
}
