package demo

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// patience bounds every wait of these tests.
const patience = time.Minute

// A house is a database with the services on it, and a node that serves it.
type house struct {
	testing.TB
	ctx        context.Context
	store      *store.Store
	tenants    *tenants.Service
	plans      *plans.Service
	exceptions *exceptions.Service
	watcher    *snapshot.Watcher
}

// newHouse opens an empty database.
func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{TB: t, ctx: audit.With(t.Context(), audit.Actor{Kind: "command", ID: "demo", Name: "demo"}, audit.Origin{})}
	var err error
	h.store, err = store.Open(t.Context(), store.Config{URL: fmt.Sprintf("sqlite://%s/headgate.db", t.TempDir()), Timeout: patience})
	h.must(err)
	t.Cleanup(func() { h.must(h.store.Close()) })
	h.must(h.store.Migrate(t.Context()))
	h.tenants = tenants.NewService(h.store, tenants.Config{})
	h.plans = plans.NewService(h.store, plans.Config{})
	h.exceptions = exceptions.NewService(h.store, h.tenants, h.plans, exceptions.Config{})
	h.watcher = snapshot.NewWatcher(h.store, snapshot.Config{Logger: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond})
	return h
}

// demo is a service on it, whose history is of so many hours before now.
func (h *house) demo(now time.Time, hours int, l *ledger) *Service {
	s := NewService(h.store, h.tenants, h.plans, h.exceptions, Config{Now: func() time.Time { return now }, History: time.Duration(hours) * time.Hour})
	if l != nil {
		s.observe = l.note
	}
	return s
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *house) node() Node {
	return Node{
		Snapshot: h.watcher.Current, Refresh: h.watcher.Refresh,
		NewLimiter: func(now func() int64) enforcement.Limiter { return inprocess.New(inprocess.Config{Now: now}) },
	}
}

// rows are all counts of a tenant by kind: those of the minutes that are kept, and of the hours before.
func (h *house) rows(number uint32) (all []metrics.CountRow) {
	h.Helper()
	end := time.Now().Add(24*time.Hour).Unix() / 60 * 60
	kept, err := h.store.Kept(h.ctx, 0, end)
	h.must(err)
	for _, kind := range []metrics.Kind{metrics.KindTotal, metrics.KindRoute, metrics.KindPolicy} {
		for _, q := range []metrics.CountQuery{
			{Step: metrics.Minute, From: kept.Minutes, To: end, Tenant: number, Kind: kind},
			{Step: metrics.Hour, To: kept.Minutes, Tenant: number, Kind: kind},
		} {
			rows, err := h.store.Counts(h.ctx, q)
			h.must(err)
			all = append(all, rows...)
		}
	}
	return all
}

// sums of rows by kind and name.
func sums(rows []metrics.CountRow) map[string]metrics.Counts {
	all := map[string]metrics.Counts{}
	for i := range rows {
		key := string(rows[i].Kind) + " " + rows[i].Name
		c := all[key]
		c.Add(&rows[i].Counts)
		all[key] = c
	}
	return all
}

// A ledger is what decisions were, kept apart from what counts them.
type ledger struct {
	mu      sync.Mutex
	tenants map[uint32]map[string]metrics.Counts // by number; 0: all; by kind and name
	refused [][16]byte
	n       int
}

func newLedger() *ledger { return &ledger{tenants: map[uint32]map[string]metrics.Counts{}} }

// note counts a decision in the plainest way.
func (l *ledger) note(d *enforcement.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	var c metrics.Counts
	c.Requests = 1
	switch d.Reason {
	case enforcement.ReasonOK:
		c.OK = 1
	case enforcement.ReasonAllowedByList:
		c.Listed = 1
	case enforcement.ReasonNoPolicy:
		c.Unmatched = 1
	case enforcement.ReasonOverLimit:
		c.OverLimit = 1
	case enforcement.ReasonBlocked:
		c.Blocked = 1
	case enforcement.ReasonDeniedByList:
		c.DeniedByList = 1
	default:
		panic("a reason that the demo does not have: " + string(d.Reason))
	}
	shadow := map[string]bool{}
	for i := range d.Limits {
		if s := &d.Limits[i]; d.Allowed && !s.Allowed {
			shadow[s.Rule.Policy] = true
			c.ShadowRefused = 1
		}
	}
	l.add(d, "total ", c)
	l.add(d, "route "+d.Route, c)
	for r := range d.Applied {
		l.add(d, "policy "+r.Policy, metrics.Counts{Requests: 1, ShadowRefused: map[bool]int64{true: 1}[shadow[r.Policy]]})
	}
	if !d.Allowed {
		l.refused = append(l.refused, d.ID)
	}
}

func (l *ledger) add(d *enforcement.Decision, key string, c metrics.Counts) {
	for _, number := range []uint32{d.Subject.Number, 0} {
		if l.tenants[number] == nil {
			l.tenants[number] = map[string]metrics.Counts{}
		}
		sum := l.tenants[number][key]
		sum.Add(&c)
		l.tenants[number][key] = sum
	}
}

// compare compares the counts with the ledger.
func (l *ledger) compare(t testing.TB, number uint32, counted map[string]metrics.Counts) {
	t.Helper()
	want := l.tenants[number]
	if len(want) == 0 {
		t.Errorf("tenant %d has nothing in the ledger", number)
	}
	for key, got := range counted {
		if _, known := want[key]; !known {
			t.Errorf("tenant %d: %q is counted and was never decided: %+v", number, key, got)
		}
	}
	for key, w := range want {
		got := counted[key]
		got.Cost = 0 // of the limits: the ledger does not know it
		if key[:6] == "policy" {
			got = metrics.Counts{Requests: got.Requests, ShadowRefused: got.ShadowRefused}
		}
		if got != w {
			t.Errorf("tenant %d: %q is counted as\n%+v, and was\n%+v", number, key, got, w)
		}
	}
}

// refusals are the ids of all kept refusals.
func (h *house) refusals() (ids [][16]byte) {
	h.Helper()
	f := metrics.RefusalFilter{Limit: 1000}
	for {
		page, err := h.store.Refusals(h.ctx, f)
		h.must(err)
		for i := range page {
			ids = append(ids, page[i].ID)
		}
		if len(page) < f.Limit {
			slices.SortFunc(ids, compareIDs)
			return ids
		}
		f.Before = page[len(page)-1].ID
	}
}

func compareIDs(a, b [16]byte) int { return slices.Compare(a[:], b[:]) }
