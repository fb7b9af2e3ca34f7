package preview_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// noon is when worlds begin.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A clock stands still until it is moved.
type clock struct{ micros atomic.Int64 }

func newClock(at time.Time) *clock {
	c := new(clock)
	c.set(at)
	return c
}

func (c *clock) set(at time.Time) { c.micros.Store(at.UnixMicro()) }
func (c *clock) Micros() int64    { return c.micros.Load() }
func (c *clock) Now() time.Time   { return time.UnixMicro(c.micros.Load()).UTC() }

// A world is a database with plans and tenants, and a preview service over it.
type world struct {
	*clock
	store      *store.Store
	plans      *plans.Service
	tenants    *tenants.Service
	exceptions *exceptions.Service
	analytics  *metrics.Analytics
	preview    *preview.Service
	excepted   []*enforcement.Override // in force for all tenants in decide
	reset      time.Time               // when decide begins new counters
}

func newWorld(t testing.TB, change func(*preview.Config)) *world {
	t.Helper()
	w := &world{clock: newClock(noon.Add(-24 * time.Hour))}
	var err error
	w.store, err = store.Open(t.Context(), store.Config{
		URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Timeout: time.Minute, Now: w.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.plans = plans.NewService(w.store, plans.Config{})
	w.tenants = tenants.NewService(w.store, tenants.Config{Now: w.Now})
	w.exceptions = exceptions.NewService(w.store, w.tenants, w.plans, exceptions.Config{Now: w.Now})
	w.analytics = metrics.NewAnalytics(w.store, metrics.AnalyticsConfig{Now: w.Now})
	c := preview.Config{
		Plans: w.plans, Tenants: w.tenants, Exceptions: w.exceptions, Analytics: w.analytics, Audit: w.store, Now: w.Now,
	}
	if change != nil {
		change(&c)
	}
	w.preview = preview.NewService(c)
	return w
}

// publish makes a plan of this document, or its next version, and publishes it.
func (w *world) publish(t testing.TB, slug string, d plans.Content) plans.Plan {
	t.Helper()
	ctx := t.Context()
	p, err := w.plans.Plan(ctx, slug)
	if err == nil {
		p, err = w.plans.SaveDraft(ctx, slug, plans.New(d), p.DraftRevision)
	} else {
		p, err = w.plans.CreatePlan(ctx, slug, plans.New(d))
	}
	if err == nil {
		p, _, err = w.plans.Publish(ctx, slug, plans.Publish{IfRevision: p.DraftRevision})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// draft saves a draft of a plan.
func (w *world) draft(t testing.TB, slug string, d plans.Content) {
	t.Helper()
	p, err := w.plans.Plan(t.Context(), slug)
	if err == nil {
		_, err = w.plans.SaveDraft(t.Context(), slug, plans.New(d), p.DraftRevision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) tenant(t testing.TB, slug, plan string, no tenants.NoPolicy) tenants.Tenant {
	t.Helper()
	made, err := w.tenants.CreateTenant(t.Context(), slug, tenants.Document{Name: slug, Plan: plan, NoPolicy: no})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// compiled makes the plan that checks are decided by.
func compiled(t testing.TB, d plans.Content) *enforcement.Plan {
	t.Helper()
	d = plans.New(d).Content()
	specs := make([]enforcement.RuleSpec, len(d.Policies))
	cell := uint32(0)
	for i, p := range d.Policies {
		specs[i] = enforcement.RuleSpec{
			Policy: p.Slug, Methods: p.Match.Methods, Path: p.Match.Path, Attributes: p.Match.Attributes,
			CountBy: p.CountBy, Missing: p.Missing, Replaces: p.Replaces, Mode: p.Mode, OnFailure: p.OnFailure,
		}
		for _, l := range p.Limits {
			cell++
			specs[i].Limits = append(specs[i].Limits, enforcement.RuleLimit{Limit: l, Cell: cell, Meter: l.Compile(1)})
		}
	}
	plan, err := enforcement.CompilePlan("p", 1, specs)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A request is what somebody asked at an instant.
type request struct {
	at     time.Time
	tenant int
	check  enforcement.Check
}

// decide decides requests with the real limiter, counts them, and stores what
// was counted. Several nodes share the limiter, and each counts its own.
func (w *world) decide(t testing.TB, s metrics.Store, d plans.Content, who []tenants.Tenant, nodes int, requests []request) {
	t.Helper()
	c := newClock(noon)
	plan := compiled(t, d)
	subjects := make([]*enforcement.Subject, len(who))
	for i, tenant := range who {
		subjects[i] = &enforcement.Subject{
			TenantID: tenant.ID, Tenant: tenant.Slug, Number: tenant.Number, Home: tenant.Home, Plan: plan, PlanRevision: 1, Calendar: calendarOf(t, tenant),
			DenyUnmatched: tenant.NoPolicy == tenants.Deny, Redact: tenant.RedactValues, NoTrace: tenant.NoTrace,
		}
		if len(w.excepted) > 0 {
			subjects[i].Exceptions = excepted(t, plan, w.excepted)
		}
	}
	limiter := inprocess.New(inprocess.Config{Now: c.Micros})
	engines, flushers := make([]*enforcement.Engine, nodes), make([]*metrics.Flusher, nodes)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range nodes {
		recorder := metrics.NewRecorder(metrics.Config{Now: c.Now})
		flushers[i] = metrics.NewFlusher(recorder, s, metrics.FlusherConfig{Now: c.Now})
		engines[i] = enforcement.NewEngine(limiter, enforcement.Config{
			Recorder: recorder, Now: c.Now,
			NewID: func() (id [16]byte) {
				binary.BigEndian.PutUint64(id[:8], uint64(c.Now().UnixMilli())<<16|0x7000)
				binary.BigEndian.PutUint64(id[8:], random.Uint64()>>2|1<<63)
				return id
			},
		})
	}
	flush := func() {
		for _, f := range flushers {
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	flushed := noon
	var decision enforcement.Decision
	for i := range requests {
		r := &requests[i]
		if r.at.Sub(flushed) > 20*time.Minute {
			flush()
			flushed = r.at
		}
		c.set(r.at)
		if !w.reset.IsZero() && r.at.Equal(w.reset) {
			key := enforcement.Partition{}
			key.Add(r.check.Attributes[0].Value)
			if err := engines[0].Reset(t.Context(), subjects[0], plan.Rules[0], key.Sum()); err != nil {
				t.Fatal(err)
			}
		}
		engines[random.IntN(nodes)].Decide(context.Background(), subjects[r.tenant], &r.check, &decision)
	}
	flush()
}

func calendarOf(t testing.TB, tenant tenants.Tenant) *enforcement.Calendar {
	t.Helper()
	c, err := enforcement.NewCalendar(tenant.TimeZone, tenant.BillingAnchorDay)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// truth decides the requests again with another document, in new stores, and returns the
// counts.
func truth(t testing.TB, d plans.Content, who []tenants.Tenant, requests []request) map[string]map[uint32]metrics.Counts {
	t.Helper()
	w := newWorld(t, nil)
	w.decide(t, w.store, d, who, 1, requests)
	w.set(noon.Add(48 * time.Hour))
	return w.counted(t, who)
}

// counted gives each policy's counts by tenant.
func (w *world) counted(t testing.TB, who []tenants.Tenant) map[string]map[uint32]metrics.Counts {
	t.Helper()
	numbers := make([]uint32, len(who))
	for i := range who {
		numbers[i] = who[i].Number
	}
	rows, _, err := w.analytics.Sums(t.Context(), metrics.SumQuery{
		From: noon, To: noon.Add(24 * time.Hour), Tenants: numbers, Kind: metrics.KindPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]map[uint32]metrics.Counts)
	for _, row := range rows {
		if out[row.Name] == nil {
			out[row.Name] = make(map[uint32]metrics.Counts)
		}
		out[row.Name][row.Tenant] = row.Counts
	}
	return out
}

// limit reads "5/1m fixed_window clock", "5/1m gcra 20".
func limit(text string) enforcement.Limit {
	var quota int64
	var window, algorithm, more string
	_, _ = fmt.Sscanf(text, "%d/%s %s %s", &quota, &window, &algorithm, &more)
	l := enforcement.Limit{Name: "l1", Quota: quota}
	l.Window, _ = enforcement.ParseWindow(window)
	l.Algorithm, _ = enforcement.ParseAlgorithm(algorithm)
	if l.Algorithm.Bucket() {
		_, _ = fmt.Sscan(more, &l.Burst)
	} else if more == "clock" {
		l.Anchor = enforcement.Clock
	}
	return l
}

// excepted compiles overrides for the plan.
func excepted(t testing.TB, plan *enforcement.Plan, list []*enforcement.Override) *enforcement.Exceptions {
	t.Helper()
	var spec enforcement.ExceptionSpec
	for _, o := range list {
		spec.Overrides = append(spec.Overrides, *o)
	}
	x, faults := enforcement.CompileExceptions(spec, plan, 1)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return x
}
