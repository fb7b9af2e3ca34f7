package snapshot

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"github.com/headgate/headgate/steering"
	"github.com/headgate/headgate/tenants"
)

// bigWorld has 1,000 plans of 10 policies and 100,000 tenants with a key each.
func bigWorld() *world {
	const nPlans, nTenants = 1_000, 100_000
	w := newWorld()
	w.silent = true
	w.edit(func(r int64) {
		for i := 1; i <= nPlans; i++ {
			p := aPlan(i, 1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
			p.Revision = r
			w.plans[p.ID] = p
		}
		for i := 1; i <= nTenants; i++ {
			t := aTenant(i, i%nPlans+1)
			t.Revision = r
			w.tenants[t.ID] = t
			k := aKey(fmt.Sprintf("10000000-0000-7000-8000-%012d", i), i)
			k.Revision = r
			w.keys[k.ID] = k
		}
	})
	return w
}

// BenchmarkWholeWorld compiles 100,000 tenants and 1,000 plans. retained-MB is
// what the snapshot keeps, beside the rows that it was made of (whose strings
// it shares).
func BenchmarkWholeWorld(b *testing.B) {
	c := bigWorld().changes()
	var s *Snapshot
	before := heap()
	b.ReportAllocs()
	for b.Loop() {
		s, _ = Compile(nil, c, Options{})
	}
	b.ReportMetric(float64(heap()-before)/1e6, "retained-MB")
	if got := s.Counts(); got.Tenants != 100_000 || got.Plans != 1_000 || s.ProblemCount() != 0 {
		b.Fatalf("%+v, %d problems", got, s.ProblemCount())
	}
	runtime.KeepAlive(c)
}

// BenchmarkSteeredWorld is that world with three rows beside the plan of every
// tenth tenant.
func BenchmarkSteeredWorld(b *testing.B) {
	w := bigWorld()
	w.edit(func(r int64) {
		for i := 10; i <= 100_000; i += 10 {
			o := anOverride(fmt.Sprintf("o-%d", i), i, "policy-0")
			e := anEntry(fmt.Sprintf("e-%d", i), i, steering.Deny, "bob")
			k := aBlock(fmt.Sprintf("b-%d", i), i, "policy-1", "kim")
			o.Revision, e.Revision, k.Revision = r, r, r
			w.overrides[o.ID], w.entries[e.ID], w.blocks[k.ID] = o, e, k
		}
	})
	c := w.changes()
	var s *Snapshot
	before := heap()
	b.ReportAllocs()
	for b.Loop() {
		s, _ = Compile(nil, c, Options{})
	}
	b.ReportMetric(float64(heap()-before)/1e6, "retained-MB")
	if got := s.Counts(); got.Overrides != 10_000 || got.Entries != 10_000 || got.Blocks != 10_000 || s.ProblemCount() != 0 {
		b.Fatalf("%+v, %d problems", got, s.ProblemCount())
	}
	runtime.KeepAlive(c)
}

// BenchmarkOneEdit is an edit in that world, from its commit to the swap: of a
// tenant, of a key, of an override, and of a plan with its 100 tenants.
func BenchmarkOneEdit(b *testing.B) {
	w := bigWorld()
	watcher := NewWatcher(w, Config{Logger: slog.New(slog.DiscardHandler)})
	if err := watcher.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	base := watcher.Current()
	row := aTenant(77, 5)
	row.Status = tenants.Suspended
	steered := anOverride("new", 77, "policy-0")
	steered.Revision = 1
	for _, c := range []struct {
		name    string
		changes Changes
	}{
		{"tenant", Changes{Tenants: []tenants.Tenant{row}}},
		{"key", Changes{Keys: []tenants.Key{aKey("new", 77)}}},
		{"override", Changes{Overrides: []steering.Override{steered}}},
		{"plan", Changes{Plans: []PublishedPlan{aPlan(5, 2, 1, 2, 3)}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.changes.Revision = base.Revision() + 1
			b.ReportAllocs()
			for b.Loop() {
				Compile(base, c.changes, Options{})
			}
		})
	}
}

// BenchmarkFullLists is one more entry for a tenant whose lists are full.
func BenchmarkFullLists(b *testing.B) {
	w := newWorld()
	w.edit(func(r int64) {
		w.plans["plan-1"] = aPlan(1, 1, r, 1)
		t := aTenant(1, 1)
		t.Revision = r
		w.tenants[t.ID] = t
		for i := range steering.MaxEntries {
			e := anEntry(fmt.Sprintf("e-%05d", i), 1, steering.Deny, fmt.Sprintf("user-%d", i))
			if i%2 == 0 {
				e.Attribute, e.Value = "ip", fmt.Sprintf("10.%d.%d.0/24", i/512, i/2%256)
			}
			e.Revision = r
			w.entries[e.ID] = e
		}
	})
	base, _ := Compile(nil, w.changes(), Options{})
	if got := base.Counts(); got.Entries != steering.MaxEntries || base.ProblemCount() != 0 {
		b.Fatalf("%+v, %d problems", got, base.ProblemCount())
	}
	more := anEntry("e-more", 1, steering.Deny, "bob")
	more.Revision = base.Revision() + 1
	b.ReportAllocs()
	for b.Loop() {
		Compile(base, Changes{Revision: more.Revision, Entries: []steering.Entry{more}}, Options{})
	}
}

// BenchmarkLookup is what a request asks of a snapshot.
func BenchmarkLookup(b *testing.B) {
	s, _ := Compile(nil, bigWorld().changes(), Options{})
	hash, id := keyHash("10000000-0000-7000-8000-000000050000"), tenantID(50_000)
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := s.Key(hash); !ok {
				b.Fatal("lost")
			}
		}
	})
	b.Run("tenant", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := s.Subject(id); !ok {
				b.Fatal("lost")
			}
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
