package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/cow"
	"github.com/headgate/headgate/tenants"
)

// ErrHeld is in the chain of Report.Held: the world that was read looks like a
// lost or restored database and waits for an operator. The snapshot before
// stays in force.
var ErrHeld = errors.New("held for an operator")

// fewTenants is from how many objects on a world that lost more than half of
// them is not believed; below it, an operator may well be trying things out.
const fewTenants = 20

// Options of Compile; the zero value is usable.
type Options struct {
	// Full says that changes are the whole world: what is not in them is gone.
	// Always so without a previous snapshot.
	Full bool
	// Accept takes a world that would be held. Default false.
	Accept bool
	// Now tells the time of problems and of HasOperatorKey; default time.Now.
	Now func() time.Time
	// MaxTenants, MaxKeys, MaxPolicies and MaxExceptions (overrides, list entries,
	// blocks and changes of policies together): beyond them a world is held,
	// before it fills the memory. Default 1,000,000 each, keys 2,000,000, MaxExceptions
	// 5,000,000: sixteen tenants with all that one may have, at some 0.6 kB a row.
	MaxTenants, MaxKeys, MaxPolicies, MaxExceptions int
}

// A Report says what Compile did.
type Report struct {
	Revision int64
	Full     bool
	// Plans, Tenants and Keys that were compiled anew.
	Plans, Tenants, Keys int
	// ExceptionsCompiled is of how many tenants what was set beside their plans was
	// compiled anew.
	ExceptionsCompiled int
	// Problems in the new snapshot.
	Problems int
	// Held says why the new world was not taken, with ErrHeld in its chain; the
	// snapshot is then the previous one.
	Held error
}

// Compile makes the snapshot after changes. Without a previous one (nil)
// changes are the whole world. Only what changed is compiled and copied; both
// snapshots may be used afterwards.
func Compile(previous *Snapshot, changes Changes, o Options) (*Snapshot, Report) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := newBuilder(previous, changes, o)
	if err := b.held(); err != nil {
		return previous, Report{Revision: changes.Revision, Full: b.full, Held: err}
	}
	b.remove(changes.Removed)
	b.addPlans(changes.Plans)
	b.addTenants(changes.Tenants)
	b.addExceptions(&changes)
	b.updateExceptions()
	b.addKeys(changes.Keys)
	b.report.Problems = len(b.faults)
	next := b.snapshot()
	if err := b.tooMuch(next); err != nil {
		return previous, Report{Revision: changes.Revision, Full: b.full, Held: err}
	}
	return next, b.report
}

// A builder is a snapshot that is being made.
type builder struct {
	o        Options
	changes  *Changes
	full     bool
	previous *Snapshot // nil at start; on a full reload only for last good versions
	base     *Snapshot // what is edited: previous, or nothing
	report   Report

	by         *cow.Owner
	keys       cow.Map[[32]byte, *Key]
	keyIDs     cow.Map[string, keyRef]
	tenants    cow.Map[string, *tenant]
	slugs      cow.Map[string, string]
	numbers    cow.Map[uint32, string]
	rows       cow.Map[object, rowRef]
	size       exceptionCounts
	rowEdits   map[string]*rowEdit // by tenant: those whose exceptions are to be compiled again
	plans      map[string]*plan
	faults     map[object]Problem
	operators  map[string]*Key
	generation uint64
	dirtyPlans map[string]bool
}

func newBuilder(previous *Snapshot, changes Changes, o Options) *builder {
	base, full := previous, o.Full || previous == nil
	if full {
		base = newSnapshot(o.Now)
	}
	b := &builder{
		o: o, changes: &changes, full: full, previous: previous, base: base,
		report:     Report{Revision: changes.Revision, Full: full},
		by:         new(cow.Owner),
		keys:       base.keys,
		keyIDs:     base.keyIDs,
		tenants:    base.tenants,
		slugs:      base.slugs,
		numbers:    base.numbers,
		rows:       base.rows,
		size:       base.size,
		rowEdits:   map[string]*rowEdit{},
		plans:      maps.Clone(base.plans),
		faults:     maps.Clone(base.faults),
		operators:  maps.Clone(base.operators),
		dirtyPlans: map[string]bool{},
	}
	if previous != nil {
		b.generation = previous.generation + 1
	}
	return b
}

func (b *builder) snapshot() *Snapshot {
	s := &Snapshot{
		revision:   b.changes.Revision,
		now:        b.o.Now,
		generation: b.generation,
		keys:       b.keys,
		keyIDs:     b.keyIDs,
		tenants:    b.tenants,
		slugs:      b.slugs,
		numbers:    b.numbers,
		rows:       b.rows,
		size:       b.size,
		plans:      b.plans,
		faults:     b.faults,
		operators:  b.operators,
	}
	s.ends = b.ends()
	for _, end := range s.ends {
		s.nextEnd = earlier(s.nextEnd, end)
	}
	for _, k := range b.operators {
		s.operatorUntil = max(s.operatorUntil, k.until())
	}
	return s
}

// held says why the world is not to be believed, before anything is compiled.
func (b *builder) held() error {
	if b.previous == nil || b.o.Accept {
		return nil
	}
	if b.changes.Revision < b.previous.revision {
		return fmt.Errorf("%w: the revision went back from %d to %d", ErrHeld, b.previous.revision, b.changes.Revision)
	}
	if !b.full {
		return nil
	}
	had, gone := b.vanishedTenants()
	hadPlans, gonePlans := b.vanishedPlans()
	switch {
	case gone > 0 && gone == had:
		return fmt.Errorf("%w: all %d tenants are gone, and nobody removed them", ErrHeld, had)
	case had >= fewTenants && gone > had/2:
		return fmt.Errorf("%w: %d of %d tenants are gone, and nobody removed them", ErrHeld, gone, had)
	case gonePlans > 0 && gonePlans == hadPlans || hadPlans >= fewTenants && gonePlans > hadPlans/2:
		return fmt.Errorf("%w: %d of %d plans are gone, and nobody removed them", ErrHeld, gonePlans, hadPlans)
	}
	return nil
}

func (b *builder) vanishedTenants() (had, gone int) {
	here := make(map[string]bool, len(b.changes.Tenants))
	for i := range b.changes.Tenants {
		here[b.changes.Tenants[i].ID] = true
	}
	removed := b.removed("tenant")
	for id, t := range b.previous.tenants.All {
		if !t.row.known {
			continue
		}
		had++
		if !here[id] && !removed[id] {
			gone++
		}
	}
	return had, gone
}

func (b *builder) vanishedPlans() (had, gone int) {
	here := make(map[string]bool, len(b.changes.Plans))
	for i := range b.changes.Plans {
		here[b.changes.Plans[i].ID] = true
	}
	removed := b.removed("plan")
	for id := range b.previous.plans {
		if !here[id] && !removed[id] {
			gone++
		}
	}
	return len(b.previous.plans), gone
}

func (b *builder) removed(kind string) map[string]bool {
	ids := map[string]bool{}
	for _, t := range b.changes.Removed {
		if t.Kind == kind {
			ids[t.ID] = true
		}
	}
	return ids
}

// tooMuch holds a world that is larger than it may be, or in which every quota
// became 0.
func (b *builder) tooMuch(next *Snapshot) error {
	if b.o.Accept {
		return nil
	}
	c := next.Counts()
	for _, m := range []struct {
		what    string
		n, most int
	}{
		{"tenants", c.Tenants, orElse(b.o.MaxTenants, 1_000_000)},
		{"keys", c.Keys, orElse(b.o.MaxKeys, 2_000_000)},
		{"policies", c.Policies, orElse(b.o.MaxPolicies, 1_000_000)},
		{"overrides, list entries, blocks and changes", next.size.all(), orElse(b.o.MaxExceptions, 5_000_000)},
	} {
		if m.n > m.most {
			return fmt.Errorf("%w: %d %s are more than the %d that are taken", ErrHeld, m.n, m.what, m.most)
		}
	}
	if b.previous == nil || c.Tenants < fewTenants {
		return nil
	}
	_, before := countLimits(b.previous.plans)
	limits, positive := countLimits(next.plans)
	if before > 0 && limits > 0 && positive == 0 {
		return fmt.Errorf("%w: every quota of every plan became 0", ErrHeld)
	}
	return nil
}

func countLimits(all map[string]*plan) (limits, positive int) {
	for _, p := range all {
		limits += p.limits
		positive += p.positive
	}
	return limits, positive
}

func orElse(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// fault notes an object that cannot be used as it is; a fault that was known
// before keeps its time.
func (b *builder) fault(kind, id, name string, revision int64, kept bool, err error) {
	p := Problem{Kind: kind, ID: id, Name: name, Revision: revision, Err: err, Since: b.o.Now(), Kept: kept}
	if b.previous != nil {
		if old, ok := b.previous.faults[object{kind, id}]; ok {
			p.Since = old.Since
		}
	}
	b.faults[object{kind, id}] = p
}

func (b *builder) good(kind, id string) { delete(b.faults, object{kind, id}) }

func (b *builder) remove(removed []Tombstone) {
	for _, t := range removed {
		b.good(t.Kind, t.ID)
		switch t.Kind {
		case "plan":
			if _, ok := b.plans[t.ID]; ok {
				delete(b.plans, t.ID)
				b.dirtyPlans[t.ID] = true
			}
		case "tenant":
			b.removeTenant(t.ID)
		case "key", "operator_key":
			b.removeKey(t.ID)
		case "override", "list_entry", "block":
			b.dropRow(object{t.Kind, t.ID})
		}
	}
}

func (b *builder) removeTenant(id string) {
	t, ok := b.tenants.Get(id)
	if !ok {
		return
	}
	for _, hash := range t.keys {
		if k, ok := b.keys.Get(hash); ok {
			b.keyIDs.Delete(b.by, k.ID)
			b.keys.Delete(b.by, hash)
			b.good("key", k.ID)
		}
	}
	b.dropRows(t)
	b.release(t)
	b.tenants.Delete(b.by, id)
}

// release gives a tenant's slug and number back.
func (b *builder) release(t *tenant) {
	if t.subject != nil {
		b.slugs.Delete(b.by, t.subject.Tenant)
		b.numbers.Delete(b.by, t.subject.Number)
	}
}

func (b *builder) removeKey(id string) {
	ref, ok := b.keyIDs.Get(id)
	if !ok {
		return
	}
	b.keyIDs.Delete(b.by, id)
	b.keys.Delete(b.by, ref.hash)
	delete(b.operators, id)
	if t, ok := b.tenants.Get(ref.tenantID); ok {
		t = b.mutable(t)
		t.keys = slices.DeleteFunc(t.keys, func(h [32]byte) bool { return h == ref.hash })
	}
}

// mutable gives a tenant's record that this builder may write.
func (b *builder) mutable(t *tenant) *tenant {
	if t.generation == b.generation {
		return t
	}
	c := *t
	c.keys = slices.Clone(t.keys)
	c.generation = b.generation
	b.tenants.Put(b.by, c.row.id, &c)
	return &c
}

func (b *builder) record(id string) *tenant {
	if t, ok := b.tenants.Get(id); ok {
		return b.mutable(t)
	}
	t := &tenant{row: tenantRow{id: id}, generation: b.generation}
	b.tenants.Put(b.by, id, t)
	return t
}

func (b *builder) addPlans(rows []PublishedPlan) {
	for i := range rows {
		row := &rows[i]
		b.report.Plans++
		b.dirtyPlans[row.ID] = true
		compiled, err := compilePlan(row)
		if err == nil {
			b.good("plan", row.ID)
			p := &plan{slug: row.Slug, compiled: compiled}
			for _, r := range compiled.Rules {
				for _, l := range r.Limits {
					p.limits++
					if l.Quota > 0 {
						p.positive++
					}
				}
			}
			b.plans[row.ID] = p
			continue
		}
		last := b.plans[row.ID]
		if last == nil && b.previous != nil {
			last = b.previous.plans[row.ID]
		}
		if last == nil {
			last = &plan{slug: row.Slug}
		}
		b.plans[row.ID] = last
		b.fault("plan", row.ID, row.Slug, row.Revision, last.compiled != nil, fmt.Errorf("plan %s: %w", row.Slug, err))
	}
}

func (b *builder) addTenants(rows []tenants.Tenant) {
	var later []*tenants.Tenant
	for i := range rows {
		if b.full && b.previous != nil && !b.settled(&rows[i]) {
			later = append(later, &rows[i]) // whoever had a slug and number keeps them
			continue
		}
		b.addTenant(&rows[i])
	}
	for _, r := range later {
		b.addTenant(r)
	}
	if b.full || len(b.dirtyPlans) == 0 {
		return
	}
	var moved []*tenant
	for _, t := range b.tenants.All {
		if b.dirtyPlans[t.row.planID] {
			moved = append(moved, t)
		}
	}
	for _, t := range moved {
		b.judge(b.mutable(t))
	}
}

// settled reports whether a tenant has the slug and number that it had before.
func (b *builder) settled(r *tenants.Tenant) bool {
	t, ok := b.previous.tenants.Get(r.ID)
	return ok && t.subject != nil && t.subject.Tenant == r.Slug && t.subject.Number == r.Number
}

func (b *builder) addTenant(r *tenants.Tenant) {
	if r.ID == "" {
		b.fault("tenant", "", r.Slug, r.Revision, false, errors.New("a tenant without an id"))
		return
	}
	t := b.record(r.ID)
	t.row = tenantRow{
		id: r.ID, slug: r.Slug, home: r.Home, number: r.Number, status: r.Status, noPolicy: r.NoPolicy,
		planID: r.PlanID, planRevision: r.PlanRevision, revision: r.Revision, known: true, redact: r.RedactValues,
	}
	b.judge(t)
}

// judge makes the subject of a tenant from its row, or keeps the last good one.
func (b *builder) judge(t *tenant) {
	b.report.Tenants++
	before := t.subject
	if before == nil && b.full && b.previous != nil {
		if old, ok := b.previous.tenants.Get(t.row.id); ok {
			before = old.subject
		}
	}
	next, err := b.subject(t)
	if err != nil {
		b.fault("tenant", t.row.id, t.row.slug, t.row.revision, before != nil, fmt.Errorf("tenant %s: %w", t.row.slug, err))
		if next = before; next != nil {
			// Whatever else is wrong with the row, a suspension counts, and values
			// that are not to be kept are not kept.
			stricter := *next
			stricter.Suspended = next.Suspended || t.row.status == tenants.Suspended
			stricter.Redact = next.Redact || t.row.redact
			next = &stricter
		}
		if next != nil && b.taken(t, next.Tenant, next.Number) != nil {
			next = nil // on a full reload another tenant has come to its place
		}
	} else {
		b.good("tenant", t.row.id)
	}
	b.release(t)
	if next != nil && before != nil && next.Exceptions == nil && before.Exceptions.For(next.Plan, next.PlanRevision) {
		next.Exceptions = before.Exceptions // rows that are the same are not compiled again
	}
	t.subject = next
	if t.rows != nil || next != nil && next.Exceptions != nil {
		b.touch(t.row.id)
	}
	if next != nil {
		b.slugs.Put(b.by, next.Tenant, t.row.id)
		b.numbers.Put(b.by, next.Number, t.row.id)
	}
	for _, hash := range t.keys {
		if k, ok := b.keys.Get(hash); ok {
			b.putKey(hash, *k, next)
		}
	}
}

// subject makes the subject that a tenant's row asks for.
func (b *builder) subject(t *tenant) (*enforcement.Subject, error) {
	row := &t.row
	switch {
	case !slugForm.MatchString(row.slug):
		return nil, fmt.Errorf("slug %q is not a slug", row.slug)
	case row.number == 0:
		return nil, errors.New("number 0 is not a number")
	case row.home == "" || strings.ContainsAny(row.home, "{}"):
		return nil, fmt.Errorf("home %q is not a hash tag", row.home)
	case row.status != tenants.Active && row.status != tenants.Suspended:
		return nil, fmt.Errorf("unknown status %q", row.status)
	case row.noPolicy != tenants.Allow && row.noPolicy != tenants.Deny:
		return nil, fmt.Errorf("unknown no_policy %q", row.noPolicy)
	case row.planRevision < 0:
		return nil, fmt.Errorf("plan revision %d is not a revision", row.planRevision)
	}
	if err := b.taken(t, row.slug, row.number); err != nil {
		return nil, err
	}
	s := &enforcement.Subject{
		TenantID: row.id, Tenant: row.slug, Number: row.number, Home: row.home,
		Suspended:     row.status == tenants.Suspended,
		DenyUnmatched: row.noPolicy == tenants.Deny,
		PlanRevision:  row.planRevision,
		Redact:        row.redact,
	}
	if row.planID == "" {
		return s, nil
	}
	p, ok := b.plans[row.planID]
	if !ok {
		return nil, fmt.Errorf("its plan %s is unknown or unpublished", row.planID)
	}
	s.Plan = p.compiled
	if s.Plan == nil {
		// There never was a good version: nobody knows how much may pass, so
		// nothing does. The plan is among the problems.
		s.Plan = &enforcement.Plan{Slug: p.slug}
		s.DenyUnmatched = true
	}
	return s, nil
}

// taken says whether another tenant has a slug or number: two tenants would
// then share counters.
func (b *builder) taken(t *tenant, slug string, number uint32) error {
	if id, ok := b.slugs.Get(slug); ok && id != t.row.id {
		return fmt.Errorf("slug %s belongs to tenant %s", slug, id)
	}
	if id, ok := b.numbers.Get(number); ok && id != t.row.id {
		return fmt.Errorf("number %d belongs to tenant %s", number, id)
	}
	return nil
}

func (b *builder) addKeys(keys []tenants.Key) {
	for i := range keys {
		b.addKey(&keys[i])
	}
}

func (b *builder) addKey(row *tenants.Key) {
	b.report.Keys++
	fail := func(format string, args ...any) {
		b.fault(row.Kind(), row.ID, row.Name, row.Revision, false, fmt.Errorf("key %s: %w", row.ID, fmt.Errorf(format, args...)))
	}
	if holder, ok := b.keys.Get(row.Hash); row.Hash == [32]byte{} || ok && holder.ID != row.ID {
		fail("its hash is empty or that of another key")
		b.removeKey(row.ID) // an ambiguous key must not authenticate
		return
	}
	b.good(row.Kind(), row.ID)
	set, ok := ScopesOf(row.Scopes)
	if !ok {
		fail("an unknown scope in %q; it grants nothing", row.Scopes)
	}
	if ref, ok := b.keyIDs.Get(row.ID); ok && (ref.hash != row.Hash || ref.tenantID != row.TenantID) {
		b.removeKey(row.ID)
	}
	if _, ok := b.keyIDs.Get(row.ID); !ok {
		b.keyIDs.Put(b.by, row.ID, keyRef{hash: row.Hash, tenantID: row.TenantID})
		if !row.Operator() {
			t := b.record(row.TenantID)
			t.keys = append(t.keys, row.Hash)
		}
	}
	var subject *enforcement.Subject
	if !row.Operator() {
		t, _ := b.tenants.Get(row.TenantID)
		subject = t.subject
	}
	b.putKey(row.Hash, Key{
		ID: row.ID, Name: row.Name, Operator: row.Operator(), Scopes: set,
		ExpiresAt: micros(row.ExpiresAt), RevokedAt: micros(row.RevokedAt),
	}, subject)
}

func (b *builder) putKey(hash [32]byte, k Key, s *enforcement.Subject) {
	k.Subject = s
	b.keys.Put(b.by, hash, &k)
	if k.Operator {
		b.operators[k.ID] = &k
	}
}

// micros is an instant in microseconds since the epoch; 0 for the zero time. An
// instant before the epoch stays in the past.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMicro(), 1)
}
