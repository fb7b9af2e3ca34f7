package api_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/configuration"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// start is the time at which the clocks of all tests start.
var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// A world is an API with the real services, SQLite, the in-process limiter, and one clock.
// Its transport validates every response with openapi.yaml.
type world struct {
	t       testing.TB
	api     *api.API
	store   *store.Store
	watcher *snapshot.Watcher
	counter *countingLimiter
	now     atomic.Int64 // microseconds since the epoch

	tenants    *tenants.Service
	plans      *plans.Service
	exceptions *exceptions.Service
	people     *accounts.People
	flusher    *metrics.Flusher
	fixture
}

// A fixture has the objects that the database of newWorld contains from the start.
type fixture struct {
	// API keys, named after their scopes.
	operator, operatorRead, operatorCheck string
	acme, acmeRead, acmeCheck             string
	globex                                string // of a suspended tenant
	// IDs of keys, by name and by the ID that the examples use for them.
	ids      map[string]string
	database []byte
}

// countingLimiter counts the requests that could charge, and can be made unavailable.
type countingLimiter struct {
	enforcement.Limiter
	asked atomic.Int64
	away  atomic.Bool
}

func (l *countingLimiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	l.asked.Add(int64(len(requests)))
	if l.away.Load() {
		for i := range outcomes {
			outcomes[i].Verdict, outcomes[i].Err = enforcement.Failed, enforcement.ErrNotReached
		}
		return
	}
	l.Limiter.Take(ctx, requests, outcomes)
}

// newWorld returns the world of the examples: tenant acme on version 1 of the plan pro,
// whose draft has changes; globex, which is suspended; and the plan trial without tenants.
func newWorld(t testing.TB, change ...func(*api.Config)) *world {
	t.Helper()
	return newWorldOf(t, populated(), change...)
}

// newStrictWorld returns the same world with tenants that require a method and a path.
func newStrictWorld(t testing.TB, change ...func(*api.Config)) *world {
	t.Helper()
	return newWorldOf(t, populatedStrict(), change...)
}

func newWorldOf(t testing.TB, f fixture, change ...func(*api.Config)) *world {
	t.Helper()
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "h.db")
	must(t, os.WriteFile(path, f.database, 0o600))
	w := &world{t: t, fixture: f}
	w.now.Store(start.UnixMicro())
	must(t, w.open(ctx, path))
	t.Cleanup(func() { _ = w.store.Close() })
	w.watcher = snapshot.NewWatcher(w.store, snapshot.Config{Now: w.clock, Logger: slog.New(slog.DiscardHandler)})
	must(t, w.watcher.Refresh(ctx))
	local := inprocess.New(inprocess.Config{Now: w.now.Load})
	w.counter = &countingLimiter{Limiter: local}
	recorder := metrics.NewRecorder(metrics.Config{Now: w.clock, Node: "node-1"})
	w.flusher = metrics.NewFlusher(recorder, w.store, metrics.FlusherConfig{Now: w.clock})
	people, err := accounts.NewPeople(w.store, accounts.PeopleConfig{Limiter: w.counter, Now: w.clock})
	must(t, err)
	w.people = people
	engine := enforcement.NewEngine(recorder.InstrumentLimiter(w.counter), enforcement.Config{Now: w.clock, NewID: w.newID, Recorder: recorder, Reserver: local})
	analytics := metrics.NewAnalytics(w.store, metrics.AnalyticsConfig{Now: w.clock, Live: recorder.Seconds, Pending: w.flusher.PendingRefusal})
	previews := preview.NewService(preview.Config{
		Plans: w.plans, Tenants: w.tenants, Exceptions: w.exceptions, Analytics: analytics, Audit: w.store, Now: w.clock,
		NewLimiter: func(now func() int64) (enforcement.Limiter, func(), error) {
			return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
		},
	})
	links := sharing.NewService(w.store, sharing.Config{Now: w.clock})
	links.DrawnBy(sharing.Denials, func(context.Context, sharing.Link) ([]byte, error) { return []byte("a page"), nil }) // the pages do it
	cfg := api.Config{
		TrustedProxy: func(*http.Request) bool { return true },
		Snapshot:     w.watcher.Current, People: people, Decider: engine, Reservations: engine,
		Configuration: configuration.NewService(configuration.Config{
			Store: w.store, Plans: w.plans, Tenants: w.tenants, Exceptions: w.exceptions, Preview: previews, Now: w.clock,
		}),
		Tenants: w.tenants, Plans: w.plans, Exceptions: w.exceptions, Audit: w.store, Once: w.store.Once, Analytics: analytics,
		Preview: previews, Nodes: nodes.NewService(w.store),
		Alerts: alerts.NewService(w.store, alerts.Config{Now: w.clock}), Sharing: links,
		Usage: usage.NewService(usage.Config{
			Snapshot: w.watcher.Current, Engine: engine, Analytics: analytics, Exceptions: w.exceptions, Now: w.clock,
			Counters: func(_ context.Context, s *enforcement.Subject) (c usage.Counters, err error) {
				c.Live, c.Max = local.KeysOf(s.Number, s.MaxKeys)
				return c, nil
			},
		}),
		Changed: func(ctx context.Context) { must(t, w.watcher.Refresh(ctx)) },
		Simulate: func(ctx context.Context, scenario []byte) ([]byte, error) {
			return simulation.RunOne(ctx, scenario, simulation.Config{NewLimiter: func(now func() int64) (enforcement.Limiter, func(), error) {
				return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
			}})
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "headgate_decisions_total{outcome=\"allowed\"} 1\n")
		}),
		Headers: api.Draft11, Now: w.clock,
	}
	for _, f := range change {
		f(&cfg)
	}
	w.api = api.New(cfg)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// proDocument is version 1 of the plan pro in the examples.
func proDocument() plans.Content {
	return plans.Content{Name: "Pro", Description: "For teams.", Policies: []plans.Policy{
		{
			Slug: "login-per-ip", Match: plans.Match{Methods: []string{"POST"}, Path: "/v1/login"}, CountBy: []string{"ip"},
			Limits: []enforcement.Limit{{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}},
		},
		{
			Slug: "reports-per-user", Match: plans.Match{Path: "/v1/reports"}, CountBy: []string{"user"}, Missing: enforcement.MissingDeny,
			Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 100, Window: time.Hour}},
		},
	}}
}

// proDraft is its draft: one limit raised, one policy added.
func proDraft() plans.Content {
	d := proDocument()
	d.Policies[0].Limits[0].Quota = 10
	d.Policies = append(d.Policies, plans.Policy{
		Slug: "search-per-user", Match: plans.Match{Methods: []string{"GET"}, Path: "/v1/search"}, CountBy: []string{"user"},
		Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Second, Burst: 20}},
	})
	return d
}

// newID returns decision IDs of the world's clock. A decision is counted in the minute of
// its ID.
func (w *world) newID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(w.now.Load()/1000)<<16|0x7000|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}

// flush writes the counts to the database, a minute and a half later, when the minute has
// ended.
func (w *world) flush() {
	w.t.Helper()
	w.now.Add((90 * time.Second).Microseconds())
	must(w.t, w.flusher.Flush(w.t.Context()))
}

func (w *world) clock() time.Time { return time.UnixMicro(w.now.Load()) }

// open opens the database and makes the services on it.
func (w *world) open(ctx context.Context, path string) (err error) {
	w.store, err = store.Open(ctx, store.Config{URL: "sqlite://" + path, Now: w.clock})
	w.tenants = tenants.NewService(w.store, tenants.Config{Now: w.clock})
	w.plans = plans.NewService(w.store, plans.Config{})
	w.exceptions = exceptions.NewService(w.store, w.tenants, w.plans, exceptions.Config{Now: w.clock})
	return err
}

// populated and populatedStrict create the databases of the fixtures once, because copying a
// file is faster than migrating. In the strict one, which the examples use, checks must have a
// method and a path.
var (
	populated       = sync.OnceValue(func() fixture { return populate(true) })
	populatedStrict = sync.OnceValue(func() fixture { return populate(false) })
)

func populate(routeOptional bool) fixture {
	folder, err := os.MkdirTemp("", "headgate-api")
	check(err)
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "h.db")
	ctx := audit.With(context.Background(), audit.Actor{Kind: "command", ID: "sample", Name: "sample"}, audit.Origin{})
	w := &world{fixture: fixture{ids: map[string]string{}}}
	w.now.Store(start.UnixMicro())
	check(w.open(ctx, path))
	check(w.store.Migrate(ctx))
	w.populate(ctx, routeOptional)
	check(w.store.Close())
	w.database, err = os.ReadFile(path)
	check(err)
	return w.fixture
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) populate(ctx context.Context, routeOptional bool) {
	p, err := w.plans.CreatePlan(ctx, "pro", plans.New(proDocument()))
	check(err)
	p, _, err = w.plans.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
	check(err)
	_, err = w.plans.SaveDraft(ctx, p.ID, plans.New(proDraft()), p.DraftRevision)
	check(err)
	_, err = w.plans.CreatePlan(ctx, "trial", plans.New(plans.Content{Name: "Trial"}))
	check(err)
	for _, d := range []tenants.Document{{Name: "Acme Inc.", Plan: "pro"}, {Name: "Globex", Plan: "pro", Status: tenants.Suspended}} {
		d.RouteOptional = routeOptional
		_, err := w.tenants.CreateTenant(ctx, strings.ToLower(strings.Fields(d.Name)[0]), d)
		check(err)
	}
	decide, read, manage := tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage
	w.acmeCheck = w.key(ctx, "acme", "gateway", decide)
	w.ids["01939c1e-0000-7000-8000-000000000021"] = w.ids["gateway"]
	w.acme = w.key(ctx, "acme", "all", decide, manage)
	w.acmeRead = w.key(ctx, "acme", "reader", read)
	w.globex = w.key(ctx, "globex", "all", decide, manage)
	w.operator = w.operatorKey(ctx, "console", decide, manage)
	w.ids["01939c1e-0000-7000-8000-000000000031"] = w.ids["console"]
	_ = w.operatorKey(ctx, "spare", manage) // the last one with manage cannot be revoked
	w.operatorRead = w.operatorKey(ctx, "reader", read)
	w.operatorCheck = w.operatorKey(ctx, "checker", decide)
}

func (w *world) key(ctx context.Context, tenant, name string, scopes ...tenants.Scope) string {
	k, token, err := w.tenants.CreateKey(ctx, tenant, tenants.NewKey{Name: name, Scopes: scopes})
	check(err)
	w.ids[name] = k.ID
	return token
}

func (w *world) operatorKey(ctx context.Context, name string, scopes ...tenants.Scope) string {
	k, token, err := w.tenants.CreateOperatorKey(ctx, tenants.NewKey{Name: name, Scopes: scopes})
	check(err)
	w.ids[name] = k.ID
	return token
}

// A call is one request to the API. An empty header value removes the header.
type call struct {
	method, path, key, body string
	header                  map[string]string
	// as is the ID that the examples use for the object that the call creates.
	as string
}

// An answer is a validated response.
type answer struct {
	status int
	header http.Header
	body   string
}

// is fails if an answer has another status, or does not contain each of the parts.
func is(t *testing.T, a answer, status int, parts ...string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%d, want %d: %s", a.status, status, a.body)
	}
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			t.Errorf("%s\nlacks %s", a.body, part)
		}
	}
}

// request makes the request of a call.
func (w *world) request(c call) *http.Request {
	var body io.Reader
	if c.body != "" {
		body = strings.NewReader(c.body)
	}
	r := httptest.NewRequestWithContext(w.t.Context(), c.method, c.path, body)
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	for k, v := range c.header {
		if v == "" {
			r.Header.Del(k)
		} else {
			r.Header.Set(k, v)
		}
	}
	return r
}

// do sends a call and validates the answer.
func (w *world) do(c call) answer {
	w.t.Helper()
	r := w.request(c)
	a := w.send(r)
	if a.status < 300 && c.body != "" {
		r.Body = io.NopCloser(strings.NewReader(c.body))
		if err := judgeRequest(r); err != nil {
			w.t.Errorf("%s %s took what the document does not allow: %s\n%v", c.method, c.path, c.body, err)
		}
	}
	return a
}

// judgeRequest validates an accepted request with openapi.yaml. The handlers may be stricter
// than openapi.yaml, but not more lenient.
func judgeRequest(r *http.Request) error {
	_, router := contract()
	route, params, err := router.FindRoute(r)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true},
	})
}

// send serves a request and validates its response with openapi.yaml. If the document does
// not have the path or the method, the answer must be a problem.
func (w *world) send(r *http.Request) answer {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	header := http.Header{}
	for name, values := range rec.Header() { // in the form that a client sees
		header[http.CanonicalHeaderKey(name)] = values
	}
	a := answer{rec.Code, header, rec.Body.String()}
	if err := judge(r, a); err != nil {
		w.t.Errorf("%s %s: %d %s\n%v", r.Method, r.URL, a.status, a.body, err)
	}
	if header.Get("X-Request-Id") == "" {
		w.t.Errorf("%s %s: no X-Request-Id", r.Method, r.URL)
	}
	return a
}

// published is openapi.yaml as clients read it.
func published() *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(headgate.Spec)
	if err != nil {
		panic(err)
	}
	return doc
}

// contract is openapi.yaml with closed schemas. With it, tests reject members that openapi.yaml
// does not name, in requests and in responses.
var contract = sync.OnceValues(func() (*openapi3.T, routers.Router) {
	doc := published()
	all := map[*openapi3.Schema]bool{}
	for _, s := range doc.Components.Schemas {
		everySchema(s.Value, all)
	}
	for s := range all {
		merge(s)
	}
	for s := range all {
		if s.Type.Is("object") && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
			s.AdditionalProperties.Has = new(bool)
		}
	}
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.FileBodyDecoder) // as text; its value is not parsed
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		panic(err)
	}
	return doc, router
})

// merge combines the parts of a schema with allOf into one object. A schema with allOf cannot
// be closed.
func merge(s *openapi3.Schema) {
	parts := s.AllOf
	s.AllOf = nil
	for _, part := range parts {
		if s.Properties == nil {
			s.Type, s.Properties = part.Value.Type, openapi3.Schemas{}
		}
		maps.Copy(s.Properties, part.Value.Properties)
		s.Required = append(s.Required, part.Value.Required...)
	}
}

// judge validates a response with the document.
func judge(r *http.Request, a answer) error {
	doc, router := contract()
	asked := r.Clone(context.Background())
	if asked.Method == http.MethodHead {
		asked.Method = http.MethodGet
	}
	route, params, err := router.FindRoute(asked)
	if err != nil {
		route, params = &routers.Route{Spec: doc, Operation: errorsOnly(doc)}, nil
		if a.status == http.StatusNoContent && r.Method == http.MethodOptions {
			return nil
		}
	}
	if r.Method == http.MethodHead {
		return nil // no body to validate
	}
	if err := judgeHeaders(route.Operation, a); err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader([]byte(a.body))),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// judgeHeaders checks that openapi.yaml names every header of the response that a client could
// use.
func judgeHeaders(op *openapi3.Operation, a answer) error {
	response := op.Responses.Value(strconv.Itoa(a.status))
	if response == nil {
		return nil // judge already reports this
	}
	for _, name := range []string{"ETag", "Link", "Location", "RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate", "X-Request-Id", "Idempotent-Replayed"} {
		switch {
		case name == "X-Request-Id" && a.status < 400, // in every response, as openapi.yaml says in one place
			strings.Contains(a.header.Get(name), `"api-`): // the limits of the API itself, as openapi.yaml says in one place
			continue
		}
		if a.header.Get(name) != "" && response.Value.Headers[name] == nil {
			return fmt.Errorf("the document has no header %s for %s with %d", name, op.OperationID, a.status)
		}
	}
	return nil
}

// errorsOnly returns the operation of a request that openapi.yaml does not contain. Its
// response must be a problem.
func errorsOnly(doc *openapi3.T) *openapi3.Operation {
	return &openapi3.Operation{Responses: openapi3.NewResponses(
		openapi3.WithStatus(404, doc.Components.Responses["NotFound"]),
		openapi3.WithStatus(405, doc.Components.Responses["NotFound"]),
		openapi3.WithStatus(401, doc.Components.Responses["Unauthenticated"]),
	)}
}
