package usage_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// start is half a minute into a minute.
var start = time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)

// A world is a node: a real database, the engine with the in-process limiter, and the
// counts, with a clock that the test sets.
type world struct {
	testing.TB
	*usage.Service
	ctx        context.Context
	now        atomic.Int64
	store      *store.Store
	tenants    *tenants.Service
	plans      *plans.Service
	exceptions *exceptions.Service
	watcher    *snapshot.Watcher
	engine     *enforcement.Engine
	flusher    *metrics.Flusher
	analytics  *metrics.Analytics
	limiter    enforcement.Limiter
	calls      atomic.Int64
	away       atomic.Bool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ctx := audit.With(t.Context(), audit.Actor{Kind: "command", ID: "test", Name: "test"}, audit.Origin{})
	w := &world{TB: t, ctx: ctx}
	w.now.Store(start.UnixMicro())
	var err error
	w.store, err = store.Open(ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Timeout: time.Minute, Now: w.clock})
	w.must(err)
	t.Cleanup(func() { _ = w.store.Close() })
	w.must(w.store.Migrate(ctx))
	w.tenants = tenants.NewService(w.store, tenants.Config{Now: w.clock})
	w.plans = plans.NewService(w.store, plans.Config{})
	w.exceptions = exceptions.NewService(w.store, w.tenants, w.plans, exceptions.Config{Now: w.clock})
	w.watcher = snapshot.NewWatcher(w.store, snapshot.Config{Now: w.clock, Logger: slog.New(slog.DiscardHandler)})
	recorder := metrics.NewRecorder(metrics.Config{Now: w.clock, Node: "n"})
	w.flusher = metrics.NewFlusher(recorder, w.store, metrics.FlusherConfig{Now: w.clock})
	w.analytics = metrics.NewAnalytics(w.store, metrics.AnalyticsConfig{Now: w.clock})
	w.limiter = inprocess.New(inprocess.Config{Now: w.now.Load})
	w.engine = enforcement.NewEngine(w, enforcement.Config{Now: w.clock, NewID: w.newID, Recorder: recorder})
	w.Service = usage.NewService(usage.Config{Snapshot: w.watcher.Current, Engine: w.engine, Analytics: w.analytics, Exceptions: w.exceptions, Now: w.clock})
	return w
}

func (w *world) clock() time.Time { return time.UnixMicro(w.now.Load()).UTC() }

// Take counts the calls of the limiter, and fails while away is set.
func (w *world) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	w.calls.Add(1)
	if w.away.Load() {
		for i := range outcomes {
			outcomes[i] = enforcement.Outcome{Verdict: enforcement.Failed, Err: enforcement.ErrNotReached}
		}
		return
	}
	w.limiter.Take(ctx, requests, outcomes)
}

// newID returns decision IDs with the time of the world's clock, by which decisions are
// counted.
func (w *world) newID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(w.now.Load()/1000)<<16|0x7000|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) pass(d time.Duration) { w.now.Add(d.Microseconds()) }

// refresh loads the configuration into the engine. flush writes the counts to the database.
func (w *world) refresh() { w.must(w.watcher.Refresh(w.ctx)) }

func (w *world) flush() { w.must(w.flusher.Flush(w.ctx)) }

// tenant makes a tenant with its own plan and refreshes this node's snapshot.
func (w *world) tenant(slug string, redact bool, policies ...plans.Policy) {
	w.Helper()
	w.unknown(slug, redact, policies...)
	w.refresh()
}

// unknown makes a tenant that this node does not know yet.
func (w *world) unknown(slug string, redact bool, policies ...plans.Policy) {
	w.Helper()
	p, err := w.plans.CreatePlan(w.ctx, slug, plans.New(plans.Content{Name: slug, Policies: policies}))
	w.must(err)
	_, _, err = w.plans.Publish(w.ctx, slug, plans.Publish{IfRevision: p.DraftRevision})
	w.must(err)
	_, err = w.tenants.CreateTenant(w.ctx, slug, tenants.Document{Name: slug, Plan: slug, RedactValues: redact})
	w.must(err)
}

// send sends a check to the engine and reports whether it passed.
func (w *world) send(tenant string, c enforcement.Check) bool {
	w.Helper()
	s, ok := w.watcher.Current().Subject(tenant)
	if !ok {
		w.Fatal("no such tenant")
	}
	var d enforcement.Decision
	w.engine.Decide(w.ctx, s, &c, &d)
	return d.Allowed
}

func user(name string, cost int64) enforcement.Check {
	return enforcement.Check{Path: "/", Cost: cost, Attributes: []enforcement.Attribute{{Name: "user", Value: name}}}
}

func policy(slug string, countBy []string, limits ...enforcement.Limit) plans.Policy {
	return plans.Policy{Slug: slug, CountBy: countBy, Limits: limits}
}

func limit(a enforcement.Algorithm, quota int64, window time.Duration) enforcement.Limit {
	return enforcement.Limit{Algorithm: a, Quota: quota, Window: window}
}
