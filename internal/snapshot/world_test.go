package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A world is a Source in memory.
type world struct {
	mu        sync.Mutex
	revision  int64
	plans     map[string]PublishedPlan
	tenants   map[string]tenants.Tenant
	keys      map[string]tenants.Key
	removed   map[string]removal
	overrides map[string]exceptions.Override
	entries   map[string]exceptions.Entry
	blocks    map[string]exceptions.Block
	changed   map[string]exceptions.Change // by tenant and policy
	away      error
	silent    bool // edits are not notified
	forgetful bool // the whole world comes without tombstones
	listener  chan struct{}
	breaks    chan struct{} // ends Notify with an error

	revisions, loads int // how often it was asked
}

type removal struct {
	Tombstone
	revision int64
}

func newWorld() *world {
	return &world{
		plans: map[string]PublishedPlan{}, tenants: map[string]tenants.Tenant{}, keys: map[string]tenants.Key{},
		removed:   map[string]removal{},
		overrides: map[string]exceptions.Override{}, entries: map[string]exceptions.Entry{}, blocks: map[string]exceptions.Block{},
		changed:  map[string]exceptions.Change{},
		listener: make(chan struct{}, 1), breaks: make(chan struct{}),
	}
}

// edit is one transaction.
func (w *world) edit(change func(revision int64)) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	change(w.revision)
	if !w.silent {
		select {
		case w.listener <- struct{}{}:
		default:
		}
	}
	return w.revision
}

func (w *world) with(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) putPlan(p PublishedPlan) int64 {
	return w.edit(func(r int64) { p.Revision = r; w.plans[p.ID] = p })
}

func (w *world) putTenant(t tenants.Tenant) int64 {
	return w.edit(func(r int64) { t.Revision = r; w.tenants[t.ID] = t })
}

func (w *world) putKey(k tenants.Key) int64 {
	return w.edit(func(r int64) { k.Revision = r; w.keys[k.ID] = k })
}

// putOverride writes an override as store does: the tenant's change of the
// policy comes with it.
func (w *world) putOverride(o exceptions.Override) int64 {
	return w.edit(func(r int64) {
		o.Revision = r
		w.overrides[o.ID] = o
		w.changed[o.TenantID+o.Policy] = exceptions.Change{TenantID: o.TenantID, Policy: o.Policy, Revision: r}
	})
}

func (w *world) putEntry(n exceptions.Entry) int64 {
	return w.edit(func(r int64) { n.Revision = r; w.entries[n.ID] = n })
}

func (w *world) putBlock(b exceptions.Block) int64 {
	return w.edit(func(r int64) { b.Revision = r; w.blocks[b.ID] = b })
}

func (w *world) putChange(c exceptions.Change) int64 {
	return w.edit(func(r int64) { c.Revision = r; w.changed[c.TenantID+c.Policy] = c })
}

func (w *world) remove(kind, id string) int64 {
	return w.edit(func(r int64) {
		delete(w.tenants, id)
		delete(w.plans, id)
		delete(w.keys, id)
		if o, ok := w.overrides[id]; ok && slugForm.MatchString(o.Policy) {
			w.changed[o.TenantID+o.Policy] = exceptions.Change{TenantID: o.TenantID, Policy: o.Policy, Revision: r}
		}
		delete(w.overrides, id)
		delete(w.entries, id)
		delete(w.blocks, id)
		maps.DeleteFunc(w.overrides, func(_ string, o exceptions.Override) bool { return o.TenantID == id })
		maps.DeleteFunc(w.entries, func(_ string, n exceptions.Entry) bool { return n.TenantID == id })
		maps.DeleteFunc(w.blocks, func(_ string, b exceptions.Block) bool { return b.TenantID == id })
		maps.DeleteFunc(w.changed, func(_ string, c exceptions.Change) bool { return c.TenantID == id })
		maps.DeleteFunc(w.keys, func(_ string, k tenants.Key) bool { return k.TenantID == id })
		w.removed[kind+id] = removal{Tombstone{kind, id}, r}
	})
}

func (w *world) Revision(context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revisions++
	return w.revision, w.away
}

func (w *world) Changes(_ context.Context, since int64) (Changes, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loads++
	if w.away != nil {
		return Changes{}, w.away
	}
	c := Changes{Revision: w.revision}
	newer := func(r int64) bool { return since == 0 || r > since }
	for _, id := range slices.Sorted(maps.Keys(w.plans)) {
		if p := w.plans[id]; newer(p.Revision) {
			c.Plans = append(c.Plans, p)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.tenants)) {
		if t := w.tenants[id]; newer(t.Revision) {
			c.Tenants = append(c.Tenants, t)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.keys)) {
		if k := w.keys[id]; newer(k.Revision) {
			c.Keys = append(c.Keys, k)
		}
	}
	c.Overrides = newerRows(w.overrides, newer, func(o exceptions.Override) int64 { return o.Revision })
	c.Entries = newerRows(w.entries, newer, func(n exceptions.Entry) int64 { return n.Revision })
	c.Blocks = newerRows(w.blocks, newer, func(b exceptions.Block) int64 { return b.Revision })
	c.PolicyChanges = newerRows(w.changed, newer, func(c exceptions.Change) int64 { return c.Revision })
	for _, id := range slices.Sorted(maps.Keys(w.removed)) {
		if r := w.removed[id]; newer(r.revision) && (since > 0 || !w.forgetful) {
			c.Removed = append(c.Removed, r.Tombstone)
		}
	}
	return c, nil
}

// newerRows are those rows, by their key, whose revision is newer.
func newerRows[T any](rows map[string]T, newer func(int64) bool, revision func(T) int64) (list []T) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		if row := rows[id]; newer(revision(row)) {
			list = append(list, row)
		}
	}
	return list
}

func (w *world) Notify(ctx context.Context, changed func()) error {
	for {
		select {
		case <-w.listener:
			changed()
		case <-w.breaks:
			return errors.New("connection reset")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changes returns the whole world as one set of changes.
func (w *world) changes() Changes {
	c, _ := w.Changes(context.Background(), 0)
	return c
}

func planID(n int) string   { return fmt.Sprintf("plan-%d", n) }
func tenantID(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }
func keyHash(id string) [32]byte {
	return sha256.Sum256([]byte(id))
}

// aPlan is a published plan with one policy for each quota.
func aPlan(n, version int, quotas ...int64) PublishedPlan {
	p := PublishedPlan{ID: planID(n), Slug: fmt.Sprintf("plan-%d", n), Version: version}
	for i, q := range quotas {
		l := enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: q, Window: time.Minute}
		policy := plans.Policy{
			Slug: fmt.Sprintf("policy-%d", i), Match: plans.Match{Path: fmt.Sprintf("/api/%d/*", i)},
			CountBy: []string{"user"}, Missing: enforcement.MissingShared, Mode: enforcement.PolicyEnforce,
			OnFailure: enforcement.OnFailureLocal, Consistency: enforcement.Exact, Limits: []enforcement.Limit{l},
		}
		policies(func(d *plans.Content) { d.Policies = append(d.Policies, policy) })(&p)
		p.Limits = append(p.Limits, plans.Published{
			Cell: plans.Cell{Number: uint32(i + 1), Policy: policy.Slug, Limit: "l1", Algorithm: l.Algorithm, CountBy: policy.CountBy},
			Rev:  1, Limit: l,
		})
	}
	return p
}

// aTenant is an active tenant on plan n.
func aTenant(n, onPlan int) tenants.Tenant {
	return tenants.Tenant{
		ID: tenantID(n), Slug: fmt.Sprintf("tenant-%d", n), Number: uint32(n), Home: fmt.Sprintf("h%d", n%64),
		Document:     tenants.Document{Status: tenants.Active, NoPolicy: tenants.Allow, Plan: fmt.Sprintf("plan-%d", onPlan)},
		PlanID:       planID(onPlan),
		PlanRevision: 1,
	}
}

// aKey is a check key of tenant n.
func aKey(id string, n int) tenants.Key {
	return tenants.Key{ID: id, TenantID: tenantID(n), Name: id, Hash: keyHash(id), Scopes: []tenants.Scope{tenants.ScopeCheck}}
}

// worldBegan is the time at which the rows of the world were written.
var worldBegan = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// anOverride of a policy doubles its numbers for all keys of tenant n, for a day.
func anOverride(id string, n int, policy string) exceptions.Override {
	return exceptions.Override{
		ID: id, TenantID: tenantID(n), Policy: policy, Factor: 2000, Reason: "launch",
		CreatedAt: worldBegan, ExpiresAt: worldBegan.Add(24 * time.Hour),
	}
}

// anEntry of a list of tenant n, for one user, without an end.
func anEntry(id string, n int, list exceptions.List, user string) exceptions.Entry {
	return exceptions.Entry{ID: id, TenantID: tenantID(n), List: list, Attribute: "user", Value: user, CreatedAt: worldBegan}
}

// aBlock of one user of tenant n, for an hour.
func aBlock(id string, n int, policy, user string) exceptions.Block {
	return exceptions.Block{
		ID: id, TenantID: tenantID(n), Policy: policy, Key: map[string]string{"user": user}, Reason: "scraping",
		CreatedAt: worldBegan, ExpiresAt: worldBegan.Add(time.Hour),
	}
}

// smallWorld has plans 1 to 3 and n tenants, spread over them, with a key each.
func smallWorld(n int) *world {
	w := newWorld()
	w.edit(func(r int64) {
		for i := 1; i <= 3; i++ {
			p := aPlan(i, 1, 10, 20)
			p.Revision = r
			w.plans[p.ID] = p
		}
		for i := 1; i <= n; i++ {
			t := aTenant(i, i%3+1)
			t.Revision = r
			w.tenants[t.ID] = t
			k := aKey(fmt.Sprintf("key-%d", i), i)
			k.Revision = r
			w.keys[k.ID] = k
		}
		w.keys["op"] = tenants.Key{ID: "op", Name: "op", Hash: keyHash("op"), Revision: r, Scopes: []tenants.Scope{tenants.ScopeManage}}
	})
	return w
}
