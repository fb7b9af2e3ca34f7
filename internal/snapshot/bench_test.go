package snapshot

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"github.com/headgate/headgate/internal/exceptions"
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

// BenchmarkWholeWorld compiles 100,000 tenants and 1,000 plans. retained-MB is the memory
// of the snapshot without the rows from which it was compiled (it shares their strings).
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

// BenchmarkExceptionsWorld compiles the same world, with three exceptions for every tenth
// tenant.
func BenchmarkExceptionsWorld(b *testing.B) {
	w := bigWorld()
	w.edit(func(r int64) {
		for i := 10; i <= 100_000; i += 10 {
			o := anOverride(fmt.Sprintf("o-%d", i), i, "policy-0")
			e := anEntry(fmt.Sprintf("e-%d", i), i, exceptions.Deny, "bob")
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

// BenchmarkOneEdit measures an edit in that world, from its commit to the swap: of a
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
	withExceptions := anOverride("new", 77, "policy-0")
	withExceptions.Revision = 1
	for _, c := range []struct {
		name    string
		changes Changes
	}{
		{"tenant", Changes{Tenants: []tenants.Tenant{row}}},
		{"key", Changes{Keys: []tenants.Key{aKey("new", 77)}}},
		{"override", Changes{Overrides: []exceptions.Override{withExceptions}}},
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

// fullTenant returns a world of one tenant with n overrides, n list entries (half of them
// networks), and n blocks.
func fullTenant(n int) *world {
	w := newWorld()
	w.silent = true
	w.edit(func(r int64) {
		w.plans["plan-1"] = aPlan(1, 1, 10, 20)
		t := aTenant(1, 1)
		t.Revision = r
		w.tenants[t.ID] = t
		k := aKey("key-1", 1)
		k.Revision = r
		w.keys[k.ID] = k
		for i := range n {
			e := anEntry(fmt.Sprintf("00000000-0000-7000-8000-1%011d", i), 1, exceptions.Deny, fmt.Sprintf("denied-%d", i))
			if i%2 == 0 {
				e.Attribute, e.Value = "ip", fmt.Sprintf("10.%d.%d.%d/30", i>>15&255, i>>7&255, i<<1&252)
			}
			o := anOverride(fmt.Sprintf("00000000-0000-7000-8000-2%011d", i), 1, "policy-0")
			o.Attribute, o.Value = "user", fmt.Sprintf("user-%d", i)
			k := aBlock(fmt.Sprintf("00000000-0000-7000-8000-3%011d", i), 1, "policy-1", fmt.Sprintf("user-%d", i))
			e.Revision, o.Revision, k.Revision = r, r, r
			w.entries[e.ID], w.overrides[o.ID], w.blocks[k.ID] = e, o, k
		}
	})
	return w
}

// BenchmarkFullTenant measures a tenant with the maximum number of overrides, list entries,
// and blocks: compiling all of it, and one edit. heap-MB is the memory of a node for it,
// with the texts of the rows.
func BenchmarkFullTenant(b *testing.B) {
	const n = exceptions.MaxOverrides
	var base *Snapshot
	b.Run("whole", func(b *testing.B) {
		before := heap()
		changes := fullTenant(n).changes()
		for b.Loop() {
			base, _ = Compile(nil, changes, Options{})
		}
		clear(changes.Overrides) // heap-MB counts what the snapshot keeps of them
		clear(changes.Entries)
		clear(changes.Blocks)
		b.ReportMetric(float64(heap()-before)/1e6, "heap-MB")
		if got := base.Counts(); got.Overrides != n || got.Entries != n || got.Blocks != n || base.ProblemCount() != 0 {
			b.Fatalf("%+v, %d problems", got, base.ProblemCount())
		}
	})
	r := base.Revision() + 1
	o, e, k := anOverride("new", 1, "policy-0"), anEntry("new", 1, exceptions.Deny, "new"), aBlock("new", 1, "policy-1", "new")
	o.Attribute, o.Value = "user", "new"
	o.Revision, e.Revision, k.Revision = r, r, r
	row := aTenant(1, 1)
	row.RedactValues, row.Revision = true, r
	for _, c := range []struct {
		name    string
		changes Changes
	}{
		{"override", Changes{Overrides: []exceptions.Override{o}}},
		{"entry", Changes{Entries: []exceptions.Entry{e}}},
		{"block", Changes{Blocks: []exceptions.Block{k}}},
		{"override-ended", Changes{
			Removed:       []Tombstone{{Kind: "override", ID: "00000000-0000-7000-8000-200000000007"}},
			PolicyChanges: []exceptions.Change{{TenantID: tenantID(1), Policy: "policy-0", Revision: r}},
		}},
		{"tenant", Changes{Tenants: []tenants.Tenant{row}}},
		{"plan", Changes{Plans: []PublishedPlan{aPlan(1, 2, 10, 20)}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.changes.Revision = r
			b.ReportAllocs()
			for b.Loop() {
				Compile(base, c.changes, Options{})
			}
		})
	}
}

// BenchmarkLookup measures the lookups of a request in a snapshot.
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
