package admin

import (
	"context"
	"encoding/csv"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// auditGroups are the kinds of action that can be asked for, by what stands
// before the dot.
var auditGroups = []views.Option{
	{Value: "", Label: "Everything"},
	{Value: "plan", Label: "Plans"},
	{Value: "tenant", Label: "Tenants"},
	{Value: "key", Label: "API keys"},
	{Value: "override", Label: "Overrides"},
	{Value: "list_entry", Label: "List entries"},
	{Value: "block", Label: "Blocks"},
	{Value: "counter", Label: "Resets of counters"},
	{Value: "user", Label: "People"},
	{Value: "invitation", Label: "Invitations"},
	{Value: "session", Label: "Sign-ins"},
	{Value: "access", Label: "Refused accesses"},
	{Value: "operator_key", Label: "Operator keys"},
	{Value: "setting", Label: "Settings"},
	{Value: "demo", Label: "Demo data"},
}

// operatorOnly are groups of which no line belongs to a tenant.
var operatorOnly = map[string]bool{"plan": true, "operator_key": true, "setting": true, "demo": true}

// auditRanges are the times that a page offers; the first is no bound.
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

// An auditReading is what of the log somebody asks for, and who it is.
type auditReading struct {
	w      *pages
	c      echo.Context
	base   string     // of the addresses: "/audit", or "/tenants/acme/audit"
	values url.Values // the parts of the address that narrow, but the cursor
	filter audit.Filter
	faults map[string]string
	// guest: a tenant's person reads, who learns nothing of the operator's people.
	guest   bool
	own     map[string]bool   // of guests: whether a user is of their tenant
	tenants map[string]string // names of tenants by id; "": gone
}

// auditOf reads the address.
func (w *pages) auditOf(c echo.Context) (*auditReading, error) {
	r := &auditReading{
		w: w, c: c, base: "/audit", values: url.Values{}, faults: map[string]string{},
		own: map[string]bool{}, tenants: map[string]string{},
	}
	if t := web.TenantOf(c); t.ID != "" {
		r.base, r.filter.TenantID = web.RouteForTenant(web.TenantPath+"/audit", t.Slug), t.ID
		r.guest = web.VisitorOf(c).User.TenantID != ""
	}
	q := c.QueryParams()
	for _, name := range []string{"actor", "kind", "action", "tenant", "object", "range", "from", "to"} {
		// Lines keep words as Clean has them; and a database takes no others.
		if value := audit.Clean(strings.TrimSpace(q.Get(name))); value != "" {
			r.values.Set(name, value)
		}
	}
	r.filter.Group, r.filter.Action, r.filter.Named = r.values.Get("kind"), r.values.Get("action"), r.values.Get("object")
	r.time()
	if after := q.Get("after"); uuid.Validate(after) == nil {
		r.filter.After = after
	}
	if err := r.ofTenant(); err != nil {
		return nil, err
	}
	return r, r.byActor()
}

// time reads since when and until when.
func (r *auditReading) time() {
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
	if s.SetCustom(r.values.Get("from"), r.values.Get("to"), now); s.Fault != "" {
		r.faults["time"] = s.Fault
		r.values.Del("from")
		r.values.Del("to")
		return
	}
	r.values.Del("range")
	r.filter.From, r.filter.To = s.From, s.To
}

// ofTenant narrows the operator's page to one tenant.
func (r *auditReading) ofTenant() error {
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
		r.filter.TenantID = ref // its lines stay when it is gone
	case problem.Is(err, problem.NotFound), problem.Is(err, problem.Invalid):
		r.faults["tenant"] = "There is no tenant of this name. Of one that is gone, give the id."
		r.filter.TenantID = uuid.Nil.String()
	case err != nil:
		return err
	default:
		r.filter.TenantID = t.ID
	}
	return nil
}

// byActor narrows to one actor. Guests choose among their own: with a text they
// could try out the names of the operator's people.
func (r *auditReading) byActor() error {
	actor := r.values.Get("actor")
	if actor == "" || !r.guest {
		r.filter.Actor = actor
		return nil
	}
	own, err := r.isOwn(r.c.Request().Context(), audit.Actor{Kind: "user", ID: actor})
	if err != nil {
		return err
	}
	if uuid.Validate(actor) != nil || !own {
		r.faults["actor"] = "There is nobody of this id among your people."
		actor = uuid.Nil.String()
	}
	r.filter.Actor = actor
	return nil
}

// isOwn reports whether an actor belongs to the tenant that is read of. A person
// does if the tenant has a line of them: those who left keep theirs.
func (r *auditReading) isOwn(ctx context.Context, a audit.Actor) (bool, error) {
	switch a.Kind {
	case "tenant_key":
		return true, nil
	case "user":
	default:
		return false, nil
	}
	if own, known := r.own[a.ID]; known {
		return own, nil
	}
	if !isID(a.ID) {
		return false, nil
	}
	lines, err := r.w.cfg.Audit.AuditEntries(ctx, audit.Filter{TenantID: web.TenantOf(r.c).ID, Group: "user", Object: a.ID, Limit: 1})
	if err != nil {
		return false, err
	}
	own := len(lines) > 0
	if !own {
		_, err := r.w.cfg.People.User(ctx, web.VisitorOf(r.c).Principal(), web.TenantOf(r.c).ID, a.ID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return false, err
		}
		own = err == nil
	}
	r.own[a.ID] = own
	return own, nil
}

func isID(text string) bool { return uuid.Validate(text) == nil }

// shown is a line as this reader may see it.
func (r *auditReading) shown(ctx context.Context, e audit.Entry) (audit.Entry, error) {
	if !r.guest {
		return e, nil
	}
	// How much happens elsewhere is nobody else's.
	e.Seq, e.Revision, e.Hash = 0, 0, audit.Hash{}
	if e.Actor.Kind == "system" {
		return e, nil
	}
	own, err := r.isOwn(ctx, e.Actor)
	if err == nil && !own {
		e.Actor, e.Origin = audit.Actor{Kind: "operator", Name: "operator"}, audit.Origin{}
	}
	return e, err
}

// address is the page with these filters and others in their place; "" takes one
// away. The cursor is not kept.
func (r *auditReading) address(path string, changed map[string]string) string {
	v := url.Values{}
	for name, values := range r.values {
		v[name] = values
	}
	for name, value := range changed {
		if v.Del(name); value != "" {
			v.Set(name, value)
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

func (r *auditReading) view(ctx context.Context) (views.Audit, error) {
	v := views.Audit{
		Title: "Audit", Lead: "Every change, who made it and from where. Lines are only added.", Tenants: true, Chain: !r.guest,
		CSVURL: r.address(r.base+".csv", nil), CSVLimit: views.Count(int64(r.w.cfg.AuditLines)).Exact, Columns: auditColumns,
		Ranges: r.ranges(), VerifyURL: "/audit/verify", Verdict: r.w.chain.view(r.w.Now()),
	}
	if web.TenantOf(r.c).ID != "" {
		v.Tabs, v.Tenants, v.VerifyURL, v.Verdict = r.w.TenantTabs(r.c, "/audit"), false, "", nil
		v.Lead = "Every change of this tenant, and who made it. Lines are only added."
	}
	if r.filter.After != "" {
		v.FirstURL = r.address(r.base, nil)
	}
	filter := r.filter
	filter.Limit = auditOnPage + 1
	lines, err := r.w.cfg.Audit.AuditEntries(ctx, filter)
	if err != nil {
		return v, err
	}
	if len(lines) > auditOnPage {
		lines = lines[:auditOnPage]
		v.NextURL = r.address(r.base, map[string]string{"after": lines[auditOnPage-1].ID})
	}
	for i := range lines {
		line, err := r.row(ctx, lines[i], changesOnPage)
		if err != nil {
			return v, err
		}
		v.Rows = append(v.Rows, line)
	}
	v.Empty = views.Empty{Title: "No line is like this", Text: "Take a filter away, or choose a longer time."}
	if len(r.values) == 0 {
		v.Empty = views.Empty{Title: "Nothing was changed yet", Text: "The first change leaves the first line."}
	}
	v.Filters, err = r.filters(ctx)
	return v, err
}

func (r *auditReading) ranges() views.Ranges {
	v := views.Ranges{Action: r.base, Error: r.faults["time"], Shown: auditRanges[0].label}
	current := r.values.Get("range")
	for _, p := range auditRanges {
		text := p.name
		if text == "" {
			text = "All"
		}
		is := p.name == current && r.values.Get("from") == "" && v.Error == ""
		if is {
			v.Shown = p.label
		}
		v.Presets = append(v.Presets, views.RangeLink{
			Text: text, Label: p.label, Current: is,
			URL: r.address(r.base, map[string]string{"range": p.name, "from": "", "to": ""}),
		})
	}
	for name := range r.values {
		if name != "range" && name != "from" && name != "to" {
			v.Hidden = append(v.Hidden, views.Hidden{Name: name, Value: r.values.Get(name)})
		}
	}
	from, to := r.filter.From, r.filter.To
	if to.IsZero() {
		to = r.w.Now().UTC()
	}
	if from.IsZero() {
		from = to.Add(-7 * web.Day)
	}
	v.From, v.To = from.UTC().Format(web.RangeForm), to.UTC().Format(web.RangeForm)
	if r.values.Get("from") != "" {
		v.Shown = from.Format("2 Jan 2006 15:04") + " to " + to.Format("2 Jan 2006 15:04 UTC")
	}
	return v
}

func (r *auditReading) filters(ctx context.Context) (views.Filters, error) {
	f := views.Filters{Action: r.base, ClearURL: r.base}
	kind := views.FilterField{Name: "kind", Label: "What", Value: r.values.Get("kind")}
	for _, g := range auditGroups {
		if web.TenantOf(r.c).ID == "" || !operatorOnly[g.Value] {
			kind.Options = append(kind.Options, g)
		}
	}
	actor := views.FilterField{
		Name: "actor", Label: "Who", Value: r.values.Get("actor"), Placeholder: "ann@, or an id",
		Error: r.faults["actor"],
	}
	if r.guest {
		members, err := r.w.cfg.People.Users(ctx, web.VisitorOf(r.c).Principal(), web.TenantOf(r.c).ID, accounts.UserFilter{Limit: 200})
		if err != nil {
			return f, err
		}
		actor.Options = []views.Option{{Label: "Everybody"}}
		for _, m := range members {
			actor.Options = append(actor.Options, views.Option{Value: m.ID, Label: m.Email})
		}
	}
	f.Fields = []views.FilterField{kind, actor, {Name: "object", Label: "Of", Value: r.values.Get("object"), Placeholder: "pro, or an id"}}
	if web.TenantOf(r.c).ID == "" {
		f.Fields = append(f.Fields, views.FilterField{
			Name: "tenant", Label: "Tenant", Value: r.values.Get("tenant"), Placeholder: "acme",
			Error: r.faults["tenant"],
		})
	}
	for _, name := range []string{"action", "range", "from", "to"} {
		if value := r.values.Get(name); value != "" {
			f.Hidden = append(f.Hidden, views.Hidden{Name: name, Value: value})
		}
	}
	for _, chip := range []struct{ label, name string }{
		{"What", "kind"},
		{"Action", "action"},
		{"Who", "actor"},
		{"Of", "object"},
		{"Tenant", "tenant"},
	} {
		value := r.values.Get(chip.name)
		if value == "" {
			continue
		}
		for _, field := range f.Fields {
			for _, o := range field.Options {
				if field.Name == chip.name && o.Value == value {
					value = o.Label
				}
			}
		}
		f.Chips = append(f.Chips, views.Chip{Name: chip.label, Value: value, RemoveURL: r.address(r.base, map[string]string{chip.name: ""})})
	}
	return f, nil
}

// tenantName is the name of a tenant by its id; "" when it is gone.
func (r *auditReading) tenantName(ctx context.Context, id string) (string, error) {
	if name, known := r.tenants[id]; known {
		return name, nil
	}
	t, err := r.w.cfg.Tenants.Tenant(ctx, id)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return "", err
	}
	r.tenants[id] = t.Name
	return t.Name, nil
}

// row is one line as its reader sees it, with at most so many changes.
func (r *auditReading) row(ctx context.Context, e audit.Entry, most int) (views.AuditRow, error) {
	e, err := r.shown(ctx, e)
	if err != nil {
		return views.AuditRow{}, err
	}
	kind := actorKindOf(e.Actor.Kind)
	v := views.AuditRow{
		URL: r.base + "/" + e.ID, When: views.NewMoment(e.At, r.w.Now()), Icon: kind.icon, Kind: kind.label, Who: e.Actor.Name,
		Address: e.Origin.Address, RequestID: e.Origin.RequestID, Action: e.Action, Words: actionWords(e.Action), Object: e.ObjectName,
	}
	if e.Seq > 0 {
		v.Seq = strconv.FormatInt(e.Seq, 10)
	}
	if v.Object == "" {
		v.Object = e.Object
	}
	if e.TenantID != "" && web.TenantOf(r.c).ID == "" {
		if v.Tenant, err = r.tenantName(ctx, e.TenantID); err != nil {
			return v, err
		}
		v.TenantURL = web.RouteForTenant(web.TenantPath, e.TenantID)
		if v.Tenant == "" {
			v.Tenant, v.TenantURL = "gone", ""
		}
	}
	v.ObjectURL = r.objectURL(e)
	changes := fieldChanges(e.Before, e.After)
	if len(changes) > most {
		v.More, changes = len(changes)-most, changes[:most]
	}
	v.Changes = changes
	return v, nil
}

func (r *auditReading) writeCSV(c echo.Context, out *csv.Writer, e audit.Entry) error {
	e, err := r.shown(c.Request().Context(), e)
	if err != nil {
		return err
	}
	seq, revision, hash := "", "", ""
	if e.Seq > 0 {
		seq, hash = strconv.FormatInt(e.Seq, 10), e.Hash.String()
	}
	if !r.guest {
		revision = strconv.FormatInt(e.Revision, 10)
	}
	fields := []string{
		e.ID, seq, e.At.UTC().Format("2006-01-02T15:04:05.000000Z"), revision, e.Actor.Kind, e.Actor.ID, e.Actor.Name,
		e.Origin.Address, e.Origin.RequestID, e.TenantID, e.Action, e.Object, e.ObjectName, string(e.Before), string(e.After), hash,
	}
	for i := range fields {
		fields[i] = inert(fields[i])
	}
	return out.Write(fields)
}
