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

// Options configures Compile. The zero value is usable.
type Options struct {
	// Full says that the changes contain all stored objects. Compile then drops each object of the
	// previous snapshot that is not in the changes. If there is no previous snapshot, Compile
	// behaves as if Full were set.
	Full bool
	// Now returns the current time. Compile uses it for Problem.Since and to decide which operator
	// keys are valid. Default: time.Now.
	Now func() time.Time
	// The maximum numbers of objects in a snapshot, so that a snapshot cannot fill the memory. If
	// the database has more, Compile rejects its state. MaxExceptions bounds the sum of overrides,
	// list entries, blocks and policy changes. Default: 1,000,000 each, but 2,000,000 keys and
	// 5,000,000 exceptions.
	MaxTenants, MaxKeys, MaxPolicies, MaxExceptions int
}

// A Report describes the result of Compile.
type Report struct {
	Revision int64
	Full     bool
	// Plans, Tenants and Keys are the numbers of objects that this call compiled.
	Plans, Tenants, Keys int
	// ExceptionsCompiled is the number of tenants whose exceptions this call compiled.
	ExceptionsCompiled int
	// Problems is the number of objects whose rows are invalid.
	Problems int
	// Held is nil if Compile accepted the stored state. Otherwise Compile returned the previous
	// snapshot, and Held says why. Held wraps errHeld.
	Held error
}

// Compile applies changes to the snapshot previous and returns the new snapshot. If previous is
// nil, changes must contain all objects. Compile copies and compiles only what has changed. The
// previous snapshot stays usable.
func Compile(previous *Snapshot, changes Changes, o Options) (*Snapshot, Report) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := newBuilder(previous, changes, o)
	err := b.implausible()
	if err == nil {
		b.remove(changes.Removed)
		b.addPlans(changes.Plans)
		b.addTenants(changes.Tenants)
		b.addExceptions(&changes)
		b.updateExceptions()
		for i := range changes.Keys {
			b.addKey(&changes.Keys[i])
		}
		b.finish()
		err = b.tooMuch()
	}
	if err != nil {
		return previous, Report{Revision: changes.Revision, Full: b.full, Held: err}
	}
	b.report.Problems = len(b.faults)
	return &b.Snapshot, b.report
}

// A builder makes a new snapshot. It edits the embedded Snapshot, which becomes the new snapshot.
// At first, the embedded Snapshot is a copy of previous, or empty if full is set.
type builder struct {
	Snapshot
	o        Options
	changes  *Changes
	full     bool
	previous *Snapshot // nil for the first snapshot; if full is set, the builder only takes the last valid versions of objects from it
	oldEnds  []int64   // the field ends of the snapshot that was copied
	report   Report

	by         *cow.Owner
	rowEdits   map[string]*rowEdit // the tenants whose exceptions must be compiled again, by tenant ID
	dirtyPlans map[string]bool
}

func newBuilder(previous *Snapshot, changes Changes, o Options) *builder {
	full := o.Full || previous == nil
	b := &builder{
		o: o, changes: &changes, full: full, previous: previous,
		report: Report{Revision: changes.Revision, Full: full},
		by:     new(cow.Owner), rowEdits: map[string]*rowEdit{}, dirtyPlans: map[string]bool{},
	}
	if full {
		b.plans, b.faults, b.operators = map[string]*plan{}, map[object]Problem{}, map[string]*Key{}
	} else {
		b.Snapshot = *previous
		b.plans, b.faults, b.operators = maps.Clone(b.plans), maps.Clone(b.faults), maps.Clone(b.operators)
	}
	if previous != nil {
		b.generation = previous.generation + 1
	}
	b.now, b.revision, b.oldEnds = o.Now, changes.Revision, b.ends
	return b
}

// finish sets the fields of the new snapshot that are computed from its other fields.
func (b *builder) finish() {
	b.ends, b.nextEnd, b.operatorUntil = b.chunkEnds(), 0, 0
	for _, end := range b.ends {
		b.nextEnd = earlier(b.nextEnd, end)
	}
	for _, k := range b.operators {
		b.operatorUntil = max(b.operatorUntil, k.until())
	}
}

// fault records that the row of an object is invalid. If the previous snapshot has a fault of the
// same object, the new fault keeps the time Since of that fault. kept says that the last valid
// version of the object stays in use.
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
		case "override", "list_entry", "block", "grant":
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

// release removes a tenant from the indexes of slugs and numbers, so that other tenants can use its
// slug and its number.
func (b *builder) release(t *tenant) {
	if t.subject != nil {
		b.slugs.Delete(b.by, t.subject.Tenant)
		b.numbers.Delete(b.by, t.subject.Number)
		if t.subject.Plan == nil {
			b.planless--
		}
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

// mutable returns a record of the tenant t that this builder may change. If this builder created t,
// the result is t. Otherwise it is a copy, which replaces t in the new snapshot.
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
			later = append(later, &rows[i]) // tenants that keep their slug and number are added first, so that no new tenant can take them
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
		b.compileTenant(b.mutable(t))
	}
}

// settled reports whether the row r has the same slug and number that its tenant has in the
// previous snapshot.
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
		routeOptional: r.RouteOptional, maxKeys: r.MaxKeys, sampleAllowed: r.SampleAllowed, noTrace: r.NoTrace, timeZone: r.TimeZone,
		anchorDay: r.BillingAnchorDay,
	}
	b.compileTenant(t)
}

// compileTenant compiles the row of a tenant to a subject. If the row is invalid, the tenant
// keeps the subject of its last valid row (see fallback).
func (b *builder) compileTenant(t *tenant) {
	b.report.Tenants++
	before := b.lastSubject(t)
	next, err := b.subject(t)
	if err != nil {
		b.fault("tenant", t.row.id, t.row.slug, t.row.revision, before != nil, fmt.Errorf("tenant %s: %w", t.row.slug, err))
		next = b.fallback(t, before)
	} else {
		b.good("tenant", t.row.id)
	}
	b.release(t)
	if next != nil && before != nil && next.Exceptions == nil && before.Exceptions.For(next.Plan, next.PlanRevision) {
		next.Exceptions = before.Exceptions // the rows of the exceptions have not changed, so the compiled exceptions are reused
	}
	t.subject = next
	if t.rows != nil || next != nil && next.Exceptions != nil {
		b.touch(t.row.id)
	}
	if next != nil {
		b.slugs.Put(b.by, next.Tenant, t.row.id)
		b.numbers.Put(b.by, next.Number, t.row.id)
		if next.Plan == nil {
			b.planless++
		}
	}
	for _, hash := range t.keys {
		if k, ok := b.keys.Get(hash); ok {
			b.putKey(hash, *k, next)
		}
	}
}

// lastSubject returns the subject that the tenant has in the previous snapshot, or nil.
func (b *builder) lastSubject(t *tenant) *enforcement.Subject {
	if t.subject == nil && b.full && b.previous != nil {
		if old, ok := b.previous.tenants.Get(t.row.id); ok {
			return old.subject
		}
	}
	return t.subject
}

// fallback returns a subject for a tenant whose row is invalid. The subject is a copy of last,
// which is the subject of the last valid row. If the invalid row says that the tenant is suspended
// or redacts values, this applies to the copy. fallback returns nil if last is nil, or if another
// tenant now has the slug or the number of last.
func (b *builder) fallback(t *tenant, last *enforcement.Subject) *enforcement.Subject {
	if last == nil || b.taken(t, last.Tenant, last.Number) != nil {
		return nil
	}
	stricter := *last
	stricter.Suspended = last.Suspended || t.row.status == tenants.Suspended
	stricter.Redact = last.Redact || t.row.redact
	return &stricter
}

// subject compiles the row of a tenant to a new enforcement.Subject. It returns an error if the row
// is invalid.
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
	case row.maxKeys < 0:
		return nil, fmt.Errorf("max_keys %d is negative", row.maxKeys)
	case row.planRevision < 0:
		return nil, fmt.Errorf("plan revision %d is not a revision", row.planRevision)
	}
	if err := b.taken(t, row.slug, row.number); err != nil {
		return nil, err
	}
	calendar, err := enforcement.NewCalendar(row.timeZone, row.anchorDay)
	if err != nil {
		return nil, err
	}
	s := &enforcement.Subject{
		TenantID: row.id, Tenant: row.slug, Number: row.number, Home: row.home,
		Suspended:     row.status == tenants.Suspended,
		DenyUnmatched: row.noPolicy == tenants.Deny,
		PlanRevision:  row.planRevision,
		Redact:        row.redact,
		RequireRoute:  !row.routeOptional,
		MaxKeys:       row.maxKeys,
		SampleAllowed: row.sampleAllowed,
		NoTrace:       row.noTrace,
		Calendar:      calendar,
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
		// No version of the plan was ever valid, so the limits of the plan are unknown.
		// Therefore every request of the tenant is denied: no policy of the empty plan matches, and
		// DenyUnmatched is set. Problems lists the plan.
		s.Plan = &enforcement.Plan{Slug: p.slug}
		s.DenyUnmatched = true
	}
	return s, nil
}

// taken returns an error if a tenant other than t has this slug or this number. Two tenants with
// the same number would use the same counters.
func (b *builder) taken(t *tenant, slug string, number uint32) error {
	if id, ok := b.slugs.Get(slug); ok && id != t.row.id {
		return fmt.Errorf("slug %s belongs to tenant %s", slug, id)
	}
	if id, ok := b.numbers.Get(number); ok && id != t.row.id {
		return fmt.Errorf("number %d belongs to tenant %s", number, id)
	}
	return nil
}
