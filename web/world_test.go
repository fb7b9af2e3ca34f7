package web_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"golang.org/x/net/html"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/admin"
	alertpages "github.com/headgate/headgate/web/alerts"
	decisionpages "github.com/headgate/headgate/web/decisions"
	"github.com/headgate/headgate/web/docs"
	"github.com/headgate/headgate/web/palette"
	planpages "github.com/headgate/headgate/web/plans"
	"github.com/headgate/headgate/web/playground"
	savedpages "github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/signin"
	tenantpages "github.com/headgate/headgate/web/tenants"
	trafficpages "github.com/headgate/headgate/web/traffic"
)

// start is the time at which the clocks of all tests start.
var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

const password = "seven quiet herons at dusk"

// A world has the pages with the real services, SQLite, the in-process limiter, and one
// clock. Its people are signed in.
type world struct {
	t          testing.TB
	handler    http.Handler
	store      *store.Store
	people     *accounts.People
	tenants    *tenants.Service
	refusals   *accounts.DeniedAccessLog
	plans      *plans.Service
	exceptions *exceptions.Service
	alerts     *alerts.Service
	sharing    *sharing.Service
	filters    *savedfilters.Service
	watcher    *snapshot.Watcher
	engine     *enforcement.Engine
	flusher    *metrics.Flusher
	recorder   *metrics.Recorder
	shell      *web.Shell
	log        *strings.Builder
	now        atomic.Int64 // microseconds since the epoch
	fixture
}

// A config is the configuration of the shell and of each page group.
type config struct {
	noMail    bool // no mail server is set
	shell     web.Config
	signin    signin.Config
	traffic   trafficpages.Config
	decisions decisionpages.Config
	plans     planpages.Config
	tenants   tenantpages.Config
	admin     admin.Config
}

// A fixture is the start of every world: an owner, an editor, and a viewer; the tenants
// acme and globex (suspended); an admin and a viewer of acme, and an admin of globex.
type fixture struct {
	database []byte
	ids      map[string]string // of users and tenants, by name
	cookies  map[string]string // by name
}

// folk are the users of the fixture: name, tenant, role.
var folk = []struct {
	name, tenant string
	role         accounts.Role
}{
	{"owner", "", accounts.Owner},
	{"editor", "", accounts.Editor},
	{"viewer", "", accounts.Viewer},
	{"acme-admin", "acme", accounts.TenantAdmin},
	{"acme-viewer", "acme", accounts.TenantViewer},
	{"globex-admin", "globex", accounts.TenantAdmin},
}

func (w *world) clock() time.Time { return time.UnixMicro(w.now.Load()) }

func (w *world) open(ctx context.Context, path string) error {
	var err error
	if w.store, err = store.Open(ctx, store.Config{URL: "sqlite://" + path, Now: w.clock}); err != nil {
		return err
	}
	if err = w.store.Migrate(ctx); err != nil {
		return err
	}
	w.tenants = tenants.NewService(w.store, tenants.Config{Now: w.clock})
	w.plans = plans.NewService(w.store, plans.Config{})
	w.exceptions = exceptions.NewService(w.store, w.tenants, w.plans, exceptions.Config{Now: w.clock})
	w.alerts = alerts.NewService(w.store, alerts.Config{
		Now: w.clock, Mail: true, Member: func(ctx context.Context, tenantID, address string) (bool, error) {
			u, err := w.store.UserByEmail(ctx, address)
			return u.TenantID == tenantID && err == nil, nil
		},
	})
	w.sharing = sharing.NewService(w.store, sharing.Config{Now: w.clock})
	w.filters = savedfilters.NewService(w.store, savedfilters.Config{Now: w.clock})
	w.refusals = accounts.NewDeniedAccessLog(w.store, accounts.DeniedAccessConfig{})
	w.people, err = accounts.NewPeople(w.store, accounts.PeopleConfig{
		Limiter: inprocess.New(inprocess.Config{Now: w.now.Load}), Now: w.clock,
	})
	return err
}

// populated creates the database of the fixture once.
var populated = sync.OnceValues(func() (fixture, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "headgate-web-")
	if err != nil {
		return fixture{}, err
	}
	defer os.RemoveAll(dir)
	w := &world{fixture: fixture{ids: map[string]string{}, cookies: map[string]string{}}}
	w.now.Store(start.UnixMicro())
	path := filepath.Join(dir, "h.db")
	if err := w.open(ctx, path); err != nil {
		return fixture{}, err
	}
	if err := w.populate(ctx); err != nil {
		return fixture{}, err
	}
	if err := w.store.Close(); err != nil {
		return fixture{}, err
	}
	w.database, err = os.ReadFile(path)
	return w.fixture, err
})

func (w *world) populate(ctx context.Context) error {
	for slug, status := range map[string]tenants.Status{"acme": tenants.Active, "globex": tenants.Suspended} {
		tenant, err := w.tenants.CreateTenant(ctx, slug, tenants.Document{Name: strings.ToUpper(slug[:1]) + slug[1:] + " Inc.", Status: status})
		if err != nil {
			return err
		}
		w.ids[slug] = tenant.ID
	}
	decision := uuid.MustParse("01a1fd54-9020-7b3c-8d2e-0123456789ab")
	w.ids["decision"] = decision.String()
	acme, err := w.tenants.Tenant(ctx, "acme")
	if err != nil {
		return err
	}
	// One denial of acme a minute ago. Nothing else was counted for it.
	if err := w.store.AddCounts(ctx, metrics.Batch{Node: "gone", Seq: 1, Refusals: []metrics.Refusal{{
		ID: decision, At: start.Add(-time.Minute), Tenant: acme.Number, TenantSlug: "acme", Route: "(none)", Reason: enforcement.ReasonNoPolicy,
		Method: "GET", Path: "/v1/nothing", Cost: 1, Node: "gone", Attributes: []enforcement.Attribute{{Name: "user", Value: "u0"}},
		Limits: []metrics.RefusalLimit{}, Policies: []metrics.RefusalPolicy{},
	}}}); err != nil {
		return err
	}
	link, err := w.people.SetupLink(ctx)
	if err != nil {
		return err
	}
	for _, f := range folk {
		n := accounts.NewPerson{Email: f.name + "@people.example", Name: strings.ToUpper(f.name[:1]) + f.name[1:], Password: password}
		var u accounts.User
		if f.role == accounts.Owner {
			u, err = w.people.SetUp(ctx, link, n)
		} else {
			_, token, failed := w.people.Invite(audit.With(ctx, audit.Actor{Kind: "command", ID: "test", Name: "test"}, audit.Origin{}),
				accounts.CommandPrincipal("test"), w.ids[f.tenant], n.Email, f.role)
			if failed != nil {
				return failed
			}
			u, err = w.people.Accept(ctx, token, n)
		}
		if err != nil {
			return err
		}
		w.ids[f.name] = u.ID
		if w.cookies[f.name], _, _, err = w.people.SignIn(ctx, n.Email, password, "192.0.2.1", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"); err != nil {
			return err
		}
	}
	for _, owner := range []string{"", "acme"} {
		if err := w.populateAlerts(ctx, owner); err != nil {
			return err
		}
	}
	lines, err := w.store.AuditEntries(ctx, audit.Filter{TenantID: w.ids["acme"], Limit: 1})
	if err != nil {
		return err
	}
	w.ids["line"] = lines[0].ID
	k, _, err := w.tenants.CreateOperatorKey(ctx, tenants.NewKey{Name: "grafana", Scopes: []tenants.Scope{tenants.ScopeRead}})
	w.ids["operator_key"] = k.ID
	return err
}

// populateAlerts gives an owner a rule with an open and a past alert, a channel, a
// message, and a shared link.
func (w *world) populateAlerts(ctx context.Context, owner string) error {
	id := w.ids[owner]
	c, err := w.alerts.CreateChannel(ctx, id, alerts.ChannelDocument{Name: "on call", Kind: alerts.Webhook, URL: "https://hooks.example.com/headgate"})
	if err != nil {
		return err
	}
	r, err := w.alerts.CreateRule(ctx, id, alerts.Document{
		Name: "Many requests are denied", Metric: alerts.DenialRate, Window: 5 * time.Minute, Threshold: 20, Recovery: 10, For: 2 * time.Minute,
		MinRequests: 100, Channels: []string{c.ID},
	})
	if err != nil {
		return err
	}
	past := alerts.Incident{ID: audit.NewID(), TenantID: id, RuleID: r.ID, Rule: r.Document, BeganAt: start.Add(-time.Hour), Value: 22, Peak: 41}
	open := past
	open.ID, open.BeganAt, past.EndedAt = audit.NewID(), start.Add(-time.Minute), start.Add(-50*time.Minute)
	for seq, a := range []alerts.Advance{
		{Began: []alerts.Incident{past}},
		{Ended: []alerts.Incident{past}},
		{Began: []alerts.Incident{open}, State: alerts.State{Phase: alerts.Firing, Since: open.BeganAt, Value: 25, Peak: 41, At: start, Incident: open.ID, Announced: true}},
	} {
		a.RuleID, a.Seq = r.ID, int64(seq+1)
		if _, err := w.store.Advance(ctx, a); err != nil {
			return err
		}
	}
	m, err := w.alerts.CreateMaintenance(ctx, id, alerts.MaintenanceDocument{Name: "Upgrade", StartsAt: start.Add(time.Hour), EndsAt: start.Add(2 * time.Hour)})
	if err != nil {
		return err
	}
	w.ids[owner+":maintenance"] = m.ID
	shown := sharing.Document{Name: "Lobby", Kind: sharing.Display, Page: sharing.Overview, Zone: "UTC"}
	if owner != "" {
		shown.Page = sharing.Traffic
	}
	l, token, err := w.sharing.Create(ctx, id, shown)
	if err != nil {
		return err
	}
	w.ids[owner+":link"], w.ids[owner+":shared"] = l.ID, token
	person := w.ids["owner"]
	saved, err := w.filters.Save(ctx, savedfilters.Place{TenantID: id, Page: "denials"}, person, savedfilters.Document{Name: "Limited", Query: "reason=limited"})
	if err != nil {
		return err
	}
	w.ids[owner+":filter"] = saved.ID
	d, err := w.alerts.Test(ctx, id, c.ID)
	w.ids[owner+":alert"], w.ids[owner+":rule"], w.ids[owner+":channel"], w.ids[owner+":message"] = open.ID, r.ID, c.ID, d.ID
	return err
}

func newWorld(t testing.TB, change ...func(*config)) *world {
	t.Helper()
	f, err := populated()
	must(t, err)
	return over(t, f, change...)
}

// empty returns a world without users.
func empty(t testing.TB) *world {
	t.Helper()
	return over(t, fixture{ids: map[string]string{}, cookies: map[string]string{}})
}

func over(t testing.TB, f fixture, change ...func(*config)) *world {
	t.Helper()
	w := &world{t: t, log: &strings.Builder{}, fixture: fixture{f.database, maps.Clone(f.ids), maps.Clone(f.cookies)}}
	w.now.Store(start.UnixMicro())
	path := filepath.Join(t.TempDir(), "h.db")
	if f.database != nil {
		must(t, os.WriteFile(path, f.database, 0o600))
	}
	must(t, w.open(t.Context(), path))
	t.Cleanup(func() { _ = w.store.Close() })
	w.watcher = snapshot.NewWatcher(w.store, snapshot.Config{Now: w.clock, Logger: slog.New(slog.DiscardHandler)})
	must(t, w.watcher.Refresh(t.Context()))
	recorder := metrics.NewRecorder(metrics.Config{Now: w.clock, Node: "node-1"})
	w.recorder = recorder
	w.flusher = metrics.NewFlusher(recorder, w.store, metrics.FlusherConfig{Now: w.clock})
	limiter := inprocess.New(inprocess.Config{Now: w.now.Load})
	w.engine = enforcement.NewEngine(recorder.InstrumentLimiter(limiter),
		enforcement.Config{Now: w.clock, NewID: w.newID, Recorder: recorder, Reserver: limiter})
	analytics := metrics.NewAnalytics(w.store, metrics.AnalyticsConfig{Now: w.clock, Live: recorder.Seconds, Pending: w.flusher.PendingRefusal})
	usages := usage.NewService(usage.Config{
		Snapshot: w.watcher.Current, Engine: w.engine, Analytics: analytics, Exceptions: w.exceptions, Now: w.clock,
		Counters: func(_ context.Context, s *enforcement.Subject) (c usage.Counters, err error) {
			c.Live, c.Max = limiter.KeysOf(s.Number, s.MaxKeys)
			c.Full = c.Live >= c.Max
			return c, nil
		},
	})
	cfg := config{
		shell: web.Config{
			Version: "v1.2.3", People: w.people, Tenants: w.tenants, Plans: w.plans, Refusals: w.refusals, Now: w.clock,
			Changed:  func(ctx context.Context) { must(t, w.watcher.Refresh(ctx)) },
			Timeout:  time.Minute, // enough for a busy machine
			Stopping: stopped(),   // a stream sends the page once and ends; tests of streams set another context
			Logger:   slog.New(slog.NewTextHandler(&locked{w: w.log}, nil)),
		},
		signin: signin.Config{People: w.people, Tenants: w.tenants},
		traffic: trafficpages.Config{
			Tenants: w.tenants, Exceptions: w.exceptions, Sharing: w.sharing, Filters: w.filters, Analytics: analytics, Usage: usages,
			Events: w.store, Alerts: w.alerts, Nodes: nodes.NewService(w.store),
			Snapshot: w.watcher.Current,
		},
		decisions: decisionpages.Config{
			Tenants: w.tenants, Sharing: w.sharing, Filters: w.filters, Analytics: analytics, Snapshot: w.watcher.Current, Decider: w.engine, Answer: answered,
		},
		plans: planpages.Config{
			Plans: w.plans, Nodes: nodes.NewService(w.store), Audit: w.store,
			Preview: preview.NewService(preview.Config{Plans: w.plans, Tenants: w.tenants, Exceptions: w.exceptions, Analytics: analytics, Audit: w.store, Now: w.clock, NewLimiter: freshLimiter}),
		},
		tenants: tenantpages.Config{
			Tenants: w.tenants, Plans: w.plans, Filters: w.filters, Exceptions: w.exceptions, Analytics: analytics, Usage: usages, Snapshot: w.watcher.Current,
		},
		admin: admin.Config{
			People: w.people, Tenants: w.tenants, Audit: w.store, Sharing: w.sharing, Filters: w.filters,
			Snapshot: w.watcher.Current, Nodes: nodes.NewService(w.store), Analytics: analytics,
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.noMail {
		w.alerts = alerts.NewService(w.store, alerts.Config{Now: w.clock})
	}
	var err error
	w.shell, err = web.New(cfg.shell)
	must(t, err)
	e := echo.New()
	documentation, err := docs.Routes(w.shell, docs.Config{Spec: headgate.Spec, Guides: headgate.Guides})
	must(t, err)
	w.shell.Register(e, documentation, signin.Routes(w.shell, cfg.signin), trafficpages.Routes(w.shell, cfg.traffic),
		decisionpages.Routes(w.shell, cfg.decisions), planpages.Routes(w.shell, cfg.plans),
		playground.Routes(w.shell, playground.Config{Simulate: func(ctx context.Context, scenario []byte) ([]byte, error) {
			return simulation.RunOne(ctx, scenario, simulation.Config{NewLimiter: freshLimiter})
		}}),
		palette.Routes(w.shell, palette.Config{
			People: w.people, Tenants: w.tenants, Plans: w.plans, Filters: w.filters, Sharing: w.sharing, Usage: usages,
			Snapshot: w.watcher.Current,
		}), tenantpages.Routes(w.shell, cfg.tenants),
		alertpages.Routes(w.shell, alertpages.Config{Alerts: w.alerts}), admin.Routes(w.shell, cfg.admin),
		savedpages.New(w.shell, w.filters).Routes())
	w.handler = e
	return w
}

// answered replaces the API, which these tests do not have. cmd/server compares the API's
// response with the page.
func answered(d *enforcement.Decision) (status int, header http.Header) {
	header = http.Header{}
	if d.Allowed {
		return http.StatusOK, header
	}
	if d.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt((d.RetryAfter+999)/1000, 10))
	}
	switch d.Reason {
	case enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota, enforcement.ReasonBlocked:
		return http.StatusTooManyRequests, header
	}
	return http.StatusForbidden, header
}

// freshLimiter returns a limiter for a simulation.
func freshLimiter(now func() int64) (enforcement.Limiter, func(), error) {
	return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
}

// newID returns decision IDs of the world's clock. A decision is counted in the minute of
// its ID.
func (w *world) newID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(w.now.Load()/1000)<<16|0x7000|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}

// publish creates a plan with one version and assigns it to a tenant.
func (w *world) publish(slug string, d plans.Content, tenant string) {
	w.t.Helper()
	ctx := w.t.Context()
	p, err := w.plans.CreatePlan(ctx, slug, plans.New(d))
	must(w.t, err)
	_, _, err = w.plans.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
	must(w.t, err)
	if tenant != "" {
		t, err := w.tenants.Tenant(ctx, tenant)
		must(w.t, err)
		t.Plan = slug
		_, err = w.tenants.UpdateTenant(ctx, t.ID, t.Document, t.Revision)
		must(w.t, err)
	}
	must(w.t, w.watcher.Refresh(ctx))
}

// decide decides requests of a tenant, each as its own check.
func (w *world) decide(tenant string, checks ...enforcement.Check) []enforcement.Decision {
	w.t.Helper()
	subject, ok := w.watcher.Current().Subject(tenant)
	if !ok {
		w.t.Fatalf("the snapshot has no tenant %q", tenant)
	}
	list := make([]enforcement.Decision, len(checks))
	for i := range checks {
		w.engine.Decide(w.t.Context(), subject, &checks[i], &list[i])
	}
	return list
}

// flush writes the counts to the database, a minute and a half later, when the minute has
// ended.
func (w *world) flush() {
	w.t.Helper()
	w.now.Add((90 * time.Second).Microseconds())
	must(w.t, w.flusher.Flush(w.t.Context()))
}

// stopped returns the context of a node that stops, which ends its streams immediately.
func stopped() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

// locked allows several requests to write to the log at the same time.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A reply is a response with its body.
type reply struct {
	*httptest.ResponseRecorder
	body string
}

const host = "http://limits.example"

// send sends a request as a browser would, from a page of the same origin. by is one of
// folk, the value of a cookie, or "" for no session. A call with a form is a form post.
func (w *world) send(method, path, by string, f url.Values, change ...func(*http.Request)) reply {
	w.t.Helper()
	var body io.Reader
	if f != nil {
		body = strings.NewReader(f.Encode())
	}
	r := httptest.NewRequest(method, host+path, body)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Origin", host)
	}
	if f != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie, known := w.cookies[by]; known {
		by = cookie
	}
	if by != "" {
		r.AddCookie(&http.Cookie{Name: "headgate", Value: by})
	}
	for _, c := range change {
		c(r)
	}
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	return reply{recorder, recorder.Body.String()}
}

func (w *world) get(path, by string) reply {
	w.t.Helper()
	return w.send(http.MethodGet, path, by, nil)
}

func (w *world) post(path, by string, f url.Values) reply {
	w.t.Helper()
	if f == nil {
		f = url.Values{}
	}
	return w.send(http.MethodPost, path, by, f)
}

// once opens the page to which a write redirected, with the cookie of that page.
func (w *world) once(made reply, by string) reply {
	w.t.Helper()
	if made.Code != http.StatusSeeOther {
		return made
	}
	return w.send(http.MethodGet, made.Header().Get("Location"), by, nil, func(r *http.Request) {
		for _, c := range made.Result().Cookies() {
			r.AddCookie(c)
		}
	})
}

// cookie returns the session cookie that a response sets, or "" if it sets none.
func (r reply) cookie() string {
	for _, c := range r.Result().Cookies() {
		if strings.HasSuffix(c.Name, "headgate") {
			return c.Value
		}
	}
	return ""
}

// tree parses a page.
func (r reply) tree(t testing.TB) *html.Node {
	t.Helper()
	n, err := html.Parse(strings.NewReader(r.body))
	must(t, err)
	return n
}
