package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

const (
	// auditOnPage is how many lines stand on one page.
	auditOnPage = 50
	// changesOnPage is how many fields of a line a list shows, changesOnLine how
	// many its own page.
	changesOnPage, changesOnLine = 12, 500
	// verifyWithin bounds a walk through the chain.
	verifyWithin = 2 * time.Minute
)

func (w *Web) auditRoutes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const all, own = accounts.TenantsList, accounts.TenantRead
	return []row{
		{get, "/audit", all, w.showAudit, bounded},
		{get, "/audit.csv", all, w.auditCSV, heavy},
		{post, "/audit/verify", all, w.verifyAudit, heavy},
		{get, "/audit/:line", all, w.showAuditLine, bounded},
		{get, tenantPath + "/audit", own, w.showAudit, bounded},
		{get, tenantPath + "/audit.csv", own, w.auditCSV, heavy},
		{get, tenantPath + "/audit/:line", own, w.showAuditLine, bounded},
	}
}

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
	{"24h", "The last 24 hours", day},
	{"7d", "The last 7 days", 7 * day},
	{"30d", "The last 30 days", 30 * day},
	{"90d", "The last 90 days", 90 * day},
}

// An auditReading is what of the log somebody asks for, and who it is.
type auditReading struct {
	w      *Web
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
func (w *Web) auditOf(c echo.Context) (*auditReading, error) {
	r := &auditReading{
		w: w, c: c, base: "/audit", values: url.Values{}, faults: map[string]string{},
		own: map[string]bool{}, tenants: map[string]string{},
	}
	if t := tenantOf(c); t.ID != "" {
		r.base, r.filter.TenantID = inTenant(tenantPath+"/audit", t.Slug), t.ID
		r.guest = who(c).user.TenantID != ""
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
	now := r.w.cfg.Now()
	for _, p := range auditRanges {
		if p.name != "" && p.name == r.values.Get("range") {
			r.filter.From = now.Add(-p.length)
		}
	}
	if r.values.Get("from") == "" && r.values.Get("to") == "" {
		return
	}
	var s span
	if s.own(r.values.Get("from"), r.values.Get("to"), now); s.fault != "" {
		r.faults["time"] = s.fault
		r.values.Del("from")
		r.values.Del("to")
		return
	}
	r.values.Del("range")
	r.filter.From, r.filter.To = s.from, s.to
}

// ofTenant narrows the operator's page to one tenant.
func (r *auditReading) ofTenant() error {
	ref := r.values.Get("tenant")
	if tenantOf(r.c).ID != "" {
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
	lines, err := r.w.cfg.Audit.AuditEntries(ctx, audit.Filter{TenantID: tenantOf(r.c).ID, Group: "user", Object: a.ID, Limit: 1})
	if err != nil {
		return false, err
	}
	own := len(lines) > 0
	if !own {
		_, err := r.w.cfg.People.User(ctx, who(r.c).principal(), tenantOf(r.c).ID, a.ID)
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

func (w *Web) showAudit(c echo.Context) error {
	return w.renderAudit(c, http.StatusOK)
}

func (w *Web) renderAudit(c echo.Context, status int) error {
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	v, err := r.view(c.Request().Context())
	if err != nil {
		return err
	}
	if len(r.faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	p := w.page(c, "Audit")
	if tenantOf(c).ID != "" {
		p = w.tenantPage(c, "Audit")
	}
	return w.render(c, status, views.AuditPage(p, v))
}

func (r *auditReading) view(ctx context.Context) (views.Audit, error) {
	v := views.Audit{
		Title: "Audit", Lead: "Every change, who made it and from where. Lines are only added.", Tenants: true, Chain: !r.guest,
		CSVURL: r.address(r.base+".csv", nil), CSVLimit: views.Count(int64(r.w.cfg.AuditLines)).Exact, Columns: auditColumns,
		Ranges: r.ranges(), VerifyURL: "/audit/verify", Verdict: r.w.chain.view(r.w.cfg.Now()),
	}
	if tenantOf(r.c).ID != "" {
		v.Tabs, v.Tenants, v.VerifyURL, v.Verdict = r.w.tenantTabs(r.c, "/audit"), false, "", nil
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
		to = r.w.cfg.Now().UTC()
	}
	if from.IsZero() {
		from = to.Add(-7 * day)
	}
	v.From, v.To = from.UTC().Format(rangeForm), to.UTC().Format(rangeForm)
	if r.values.Get("from") != "" {
		v.Shown = from.Format("2 Jan 2006 15:04") + " to " + to.Format("2 Jan 2006 15:04 UTC")
	}
	return v
}

func (r *auditReading) filters(ctx context.Context) (views.Filters, error) {
	f := views.Filters{Action: r.base, ClearURL: r.base}
	kind := views.FilterField{Name: "kind", Label: "What", Value: r.values.Get("kind")}
	for _, g := range auditGroups {
		if tenantOf(r.c).ID == "" || !operatorOnly[g.Value] {
			kind.Options = append(kind.Options, g)
		}
	}
	actor := views.FilterField{Name: "actor", Label: "Who", Value: r.values.Get("actor"), Placeholder: "ann@, or an id", Error: r.faults["actor"]}
	if r.guest {
		members, err := r.w.cfg.People.Users(ctx, who(r.c).principal(), tenantOf(r.c).ID, accounts.UserFilter{Limit: 200})
		if err != nil {
			return f, err
		}
		actor.Options = []views.Option{{Label: "Everybody"}}
		for _, m := range members {
			actor.Options = append(actor.Options, views.Option{Value: m.ID, Label: m.Email})
		}
	}
	f.Fields = []views.FilterField{kind, actor, {Name: "object", Label: "Of", Value: r.values.Get("object"), Placeholder: "pro, or an id"}}
	if tenantOf(r.c).ID == "" {
		f.Fields = append(f.Fields, views.FilterField{Name: "tenant", Label: "Tenant", Value: r.values.Get("tenant"), Placeholder: "acme", Error: r.faults["tenant"]})
	}
	for _, name := range []string{"action", "range", "from", "to"} {
		if value := r.values.Get(name); value != "" {
			f.Hidden = append(f.Hidden, views.Hidden{Name: name, Value: value})
		}
	}
	for _, chip := range []struct{ label, name string }{{"What", "kind"}, {"Action", "action"}, {"Who", "actor"}, {"Of", "object"}, {"Tenant", "tenant"}} {
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
		URL: r.base + "/" + e.ID, When: views.NewMoment(e.At, r.w.cfg.Now()), Icon: kind.icon, Kind: kind.label, Who: e.Actor.Name,
		Address: e.Origin.Address, RequestID: e.Origin.RequestID, Action: e.Action, Words: actionWords(e.Action), Object: e.ObjectName,
	}
	if e.Seq > 0 {
		v.Seq = strconv.FormatInt(e.Seq, 10)
	}
	if v.Object == "" {
		v.Object = e.Object
	}
	if e.TenantID != "" && tenantOf(r.c).ID == "" {
		if v.Tenant, err = r.tenantName(ctx, e.TenantID); err != nil {
			return v, err
		}
		v.TenantURL = inTenant(tenantPath, e.TenantID)
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

// objectURL is the page of what a line is about; "": it has none, or not for
// this reader.
func (r *auditReading) objectURL(e audit.Entry) string {
	group, verb, _ := strings.Cut(e.Action, ".")
	if verb == "delete" || verb == "remove" {
		return ""
	}
	route, end := "", ""
	switch group {
	case "plan":
		route, end = "/plans", "/"+e.ObjectName
	case "tenant":
		route = tenantPath
	case "key":
		route = tenantPath + "/keys"
	case "override":
		route = tenantPath + "/overrides"
	case "list_entry":
		route = tenantPath + "/lists"
	case "block":
		route = tenantPath + "/blocks"
	case "user", "session":
		if route, end = tenantPath+"/members", "/"+e.Object; e.TenantID == "" {
			route = "/people"
		}
	case "operator_key":
		route = "/settings/keys"
	}
	action, there := r.w.readable[route]
	if !there || !may(r.c, action) || end == "/" {
		return ""
	}
	if strings.HasPrefix(route, tenantPath) {
		if e.TenantID == "" {
			return ""
		}
		ref := e.TenantID
		if t := tenantOf(r.c); t.ID != "" {
			ref = t.Slug
		} else if name := r.tenants[ref]; name == "" {
			return "" // the tenant is gone
		}
		route = inTenant(route, ref)
	}
	return route + end
}

// showAuditLine is one line, whole. A line of another tenant is not there.
func (w *Web) showAuditLine(c echo.Context) error {
	id := c.Param("line")
	if uuid.Validate(id) != nil {
		return errNoPage
	}
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	lines, err := w.cfg.Audit.AuditEntries(ctx, audit.Filter{ID: id, TenantID: tenantOf(c).ID, Limit: 1})
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return errNoPage
	}
	v := views.AuditLine{Back: r.base}
	if v.Row, err = r.row(ctx, lines[0], changesOnLine); err != nil {
		return err
	}
	e, err := r.shown(ctx, lines[0])
	if err != nil {
		return err
	}
	v.Facts, v.Before, v.After = auditFacts(e, v.Row), indented(e.Before), indented(e.After)
	switch {
	case v.Before == "" && v.After == "":
		v.Nothing = "This line has no documents: its words say all."
	case len(v.Row.Changes) == 0:
		v.Nothing = "No field differs."
	}
	p := w.page(c, "Line of the audit log")
	p.Crumbs = []views.Link{{Text: "Audit", URL: "/audit"}, {Text: "Line " + orID(v.Row.Seq, id)}}
	if tenantOf(c).ID != "" {
		v.Tabs = w.tenantTabs(c, "/audit")
		p.Crumbs = w.tenantCrumbs(c, "Line", views.Link{Text: "Audit", URL: r.base})
	}
	return w.render(c, http.StatusOK, views.AuditLinePage(p, v))
}

func orID(seq, id string) string {
	if seq == "" {
		return id
	}
	return seq
}

// auditFacts are what a line says beside its words; what is empty is left out.
func auditFacts(e audit.Entry, v views.AuditRow) []views.AuditFact {
	var list []views.AuditFact
	add := func(name, value string) {
		if value != "" {
			list = append(list, views.AuditFact{Name: name, Text: value})
		}
	}
	add("Who", v.Kind)
	add("Id of who", e.Actor.ID)
	add("From", e.Origin.Address)
	add("Request", e.Origin.RequestID)
	add("Action", e.Action)
	add("Id of what", e.Object)
	add("Tenant", v.Tenant)
	if e.Revision > 0 {
		add("Revision", strconv.FormatInt(e.Revision, 10))
	}
	add("Place in the chain", v.Seq)
	if e.Seq > 0 {
		add("Hash", e.Hash.String())
	}
	return list
}

// A chain is what this node last found of the log's chain.
type chain struct {
	walking sync.Mutex // held while somebody verifies
	mu      sync.Mutex
	at      time.Time
	verdict audit.Verdict
}

func (k *chain) view(now time.Time) *views.ChainVerdict {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() {
		return nil
	}
	v := &views.ChainVerdict{Good: k.verdict.Broken == nil, At: views.NewMoment(k.at, now)}
	if !v.Good {
		v.Text = "The log is not as it was written: " + k.verdict.Broken.Error() + "."
		return v
	}
	if v.Text = "The chain is unbroken up to line " + strconv.FormatInt(k.verdict.Lines, 10) + "."; k.verdict.Lines == 0 {
		v.Text = "The chain has no line yet."
	}
	if n := k.verdict.Head.Outside; n > 0 {
		v.Text += " " + strconv.FormatInt(n, 10) + " older lines are from before the chain, and only counted."
	}
	return v
}

// verifyAudit is POST /audit/verify: it walks the whole chain and tells what it
// found. One walk at a time on each node.
func (w *Web) verifyAudit(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	verifier, ok := w.cfg.Audit.(audit.Verifier)
	if !ok {
		return problem.New(problem.Unavailable, "this log cannot be verified here")
	}
	if !w.chain.walking.TryLock() {
		return problem.New(problem.Unavailable, "this node is verifying the chain already: look again in a moment")
	}
	defer w.chain.walking.Unlock()
	ctx, cancel := context.WithTimeoutCause(c.Request().Context(), verifyWithin, errSlow)
	defer cancel()
	verdict, err := verifier.VerifyAudit(ctx)
	if err != nil {
		return err
	}
	w.chain.mu.Lock()
	w.chain.at, w.chain.verdict = w.cfg.Now(), verdict
	w.chain.mu.Unlock()
	return w.renderAudit(c, http.StatusOK)
}
