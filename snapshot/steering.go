package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/steering"
)

// What was set for tenants beside their plans comes as rows. A tenant that has
// any keeps them, judged, in the words of enforcement; its Subject.Steering is
// made of them anew when they, its plan or the plan's version change. A tenant
// without rows has nothing of this.

// tenantRows are the rows of one tenant. They are immutable: an edit makes new
// ones.
type tenantRows struct {
	spec enforcement.SteeringSpec // each of its lists by id
	bad  []object                 // what is left out of it
}

func (r *tenantRows) empty() bool { return r.unset() && len(r.bad) == 0 }

// unset reports whether there is nothing to compile.
func (r *tenantRows) unset() bool {
	s := &r.spec
	return len(s.Deny)+len(s.Allow)+len(s.Blocks)+len(s.Overrides)+len(s.Changed) == 0
}

// all calls yield with every row but the policy changes.
func (r *tenantRows) all(yield func(object) bool) {
	for _, list := range [][]enforcement.ListEntry{r.spec.Deny, r.spec.Allow} {
		for i := range list {
			if !yield(object{"list_entry", list[i].ID}) {
				return
			}
		}
	}
	for i := range r.spec.Blocks {
		if !yield(object{"block", r.spec.Blocks[i].ID}) {
			return
		}
	}
	for i := range r.spec.Overrides {
		if !yield(object{"override", r.spec.Overrides[i].ID}) {
			return
		}
	}
	for _, o := range r.bad {
		if !yield(o) {
			return
		}
	}
}

// A rowRef leads from a row's kind and id to where it is.
type rowRef struct {
	tenantID string
	place    place
	// until is when the row ends, in microseconds since the epoch; 0: never, or
	// it is left out.
	until int64
}

// A place is where a row stands in its tenant's rows.
type place uint8

const (
	leftOut place = iota // it cannot be used
	amongOverrides
	amongDenied
	amongAllowed
	amongBlocks
	places
)

// steeringSize is how many rows there are.
type steeringSize struct {
	rows    [places]int
	changes int // of policies
}

func (z *steeringSize) all() int {
	n := z.changes
	for _, rows := range z.rows {
		n += rows
	}
	return n
}

// A rowEdit is what comes to the rows of one tenant. What goes has only left
// the builder's index of rows.
type rowEdit struct {
	add       tenantRows
	forgotten []string // policies whose change is left out
}

// touch notes that a tenant's steering is to be made anew.
func (b *builder) touch(tenantID string) *rowEdit {
	e, ok := b.rowEdits[tenantID]
	if !ok {
		e = &rowEdit{}
		b.rowEdits[tenantID] = e
	}
	return e
}

// putRow notes where a row now is. A row is in one place only.
func (b *builder) putRow(o object, ref rowRef) *rowEdit {
	b.dropRow(o)
	b.rows.put(o, ref)
	b.size.rows[ref.place]++
	return b.touch(ref.tenantID)
}

func (b *builder) dropRow(o object) {
	ref, ok := b.rows.get(o)
	if !ok {
		return
	}
	b.rows.drop(o)
	b.size.rows[ref.place]--
	b.touch(ref.tenantID)
}

// dropRows forgets what was set for a tenant that goes.
func (b *builder) dropRows(t *tenant) {
	if t.rows == nil {
		return
	}
	for o := range t.rows.all {
		b.dropRow(o)
		b.good(o.kind, o.id)
	}
	b.size.changes -= len(t.rows.spec.Changed)
	b.good("steering", t.row.id)
}

// addSteering judges rows and puts the good ones where they belong. A bad one
// is left out, and is a problem until it is removed: also one of a deny list,
// as nobody can say whom it was to keep out.
func (b *builder) addSteering(c *Changes) {
	for i := range c.Overrides {
		r := &c.Overrides[i]
		o, err := judgeOverride(r, c.Revision)
		if b.usable("override", r.ID, r.TenantID, r.Revision, err) {
			e := b.putRow(object{"override", r.ID}, rowRef{r.TenantID, amongOverrides, o.Until})
			e.add.spec.Overrides = append(e.add.spec.Overrides, o)
		}
	}
	for i := range c.Entries {
		r := &c.Entries[i]
		n, err := judgeEntry(r)
		switch {
		case !b.usable("list_entry", r.ID, r.TenantID, r.Revision, err):
		case r.List == steering.Deny:
			e := b.putRow(object{"list_entry", r.ID}, rowRef{r.TenantID, amongDenied, n.Until})
			e.add.spec.Deny = append(e.add.spec.Deny, n)
		default:
			e := b.putRow(object{"list_entry", r.ID}, rowRef{r.TenantID, amongAllowed, n.Until})
			e.add.spec.Allow = append(e.add.spec.Allow, n)
		}
	}
	for i := range c.Blocks {
		r := &c.Blocks[i]
		block, err := judgeBlock(r)
		if b.usable("block", r.ID, r.TenantID, r.Revision, err) {
			e := b.putRow(object{"block", r.ID}, rowRef{r.TenantID, amongBlocks, block.Until})
			e.add.spec.Blocks = append(e.add.spec.Blocks, block)
		}
	}
	for i := range c.PolicyChanges {
		b.addChange(&c.PolicyChanges[i])
	}
}

// usable notes what judging a row came to.
func (b *builder) usable(kind, id, tenantID string, revision int64, err error) bool {
	switch {
	case id == "":
		err = fmt.Errorf("a row without an id")
	case tenantID == "":
		err = fmt.Errorf("it has no tenant")
	}
	if err == nil {
		b.good(kind, id)
		return true
	}
	name := ""
	if t, ok := b.tenants.get(tenantID); ok {
		name = t.row.slug
	}
	b.fault(kind, id, name, revision, false, fmt.Errorf("%s %s: %w", kind, id, err))
	o := object{kind, id}
	if b.dropRow(o); id != "" && tenantID != "" {
		e := b.putRow(o, rowRef{tenantID: tenantID})
		e.add.bad = append(e.add.bad, o)
	}
	return false
}

// addChange notes at which revision a policy's numbers last changed for a
// tenant. A revision of the future would keep counters from being converted
// for ever.
func (b *builder) addChange(r *steering.Change) {
	id := r.TenantID + "/" + r.Policy
	var err error
	switch {
	case r.TenantID == "":
		err = fmt.Errorf("it has no tenant")
	case !slugForm.MatchString(r.Policy):
		err = fmt.Errorf("policy %.64q is not a slug", r.Policy)
	case r.Revision < 1 || r.Revision > b.changes.Revision:
		err = fmt.Errorf("revision %d is not a revision", r.Revision)
	}
	if r.TenantID == "" {
		b.fault("policy_change", id, "", r.Revision, false, fmt.Errorf("policy_change %s: %w", id, err))
		return
	}
	e := b.touch(r.TenantID)
	if err != nil {
		name := ""
		if t, ok := b.tenants.get(r.TenantID); ok {
			name = t.row.slug
		}
		b.fault("policy_change", id, name, r.Revision, false, fmt.Errorf("policy_change %s: %w", id, err))
		e.forgotten = append(e.forgotten, r.Policy)
		return
	}
	b.good("policy_change", id)
	if e.add.spec.Changed == nil {
		e.add.spec.Changed = map[string]int64{}
	}
	e.add.spec.Changed[r.Policy] = r.Revision
}

// steer makes the steering of every tenant whose rows, plan or plan's version
// changed.
func (b *builder) steer() {
	for id, e := range b.rowEdits {
		t, ok := b.tenants.get(id)
		if !ok {
			if e.add.empty() && len(e.forgotten) == 0 {
				continue
			}
			t = b.record(id) // its tenant is yet to come
		}
		t = b.mutable(t)
		t.rows = b.merge(id, t.rows, e)
		b.steerTenant(t)
	}
}

// merge gives a tenant's rows after an edit; nil when none are left.
func (b *builder) merge(tenantID string, old *tenantRows, e *rowEdit) *tenantRows {
	if old == nil {
		old = &tenantRows{}
	}
	was, add := &old.spec, &e.add.spec
	entryID := func(n enforcement.ListEntry) object { return object{"list_entry", n.ID} }
	next := &tenantRows{
		spec: enforcement.SteeringSpec{
			Deny:  mergeRows(b, rowRef{tenantID: tenantID, place: amongDenied}, was.Deny, add.Deny, entryID),
			Allow: mergeRows(b, rowRef{tenantID: tenantID, place: amongAllowed}, was.Allow, add.Allow, entryID),
			Blocks: mergeRows(b, rowRef{tenantID: tenantID, place: amongBlocks}, was.Blocks, add.Blocks,
				func(n enforcement.Block) object { return object{"block", n.ID} }),
			Overrides: mergeRows(b, rowRef{tenantID: tenantID, place: amongOverrides}, was.Overrides, add.Overrides,
				func(n enforcement.Override) object { return object{"override", n.ID} }),
			Changed: was.Changed,
		},
		bad: mergeRows(b, rowRef{tenantID: tenantID, place: leftOut}, old.bad, e.add.bad, func(o object) object { return o }),
	}
	if len(add.Changed)+len(e.forgotten) > 0 {
		next.spec.Changed = maps.Clone(was.Changed)
		if next.spec.Changed == nil {
			next.spec.Changed = map[string]int64{}
		}
		maps.Copy(next.spec.Changed, add.Changed)
		for _, policy := range e.forgotten {
			delete(next.spec.Changed, policy)
		}
		b.size.changes += len(next.spec.Changed) - len(was.Changed)
	}
	if next.empty() {
		return nil
	}
	return next
}

// mergeRows gives the old rows, which are by id, and the new ones that the index
// has at a place, by id; of two with one id the later. A tenant may have
// thousands and get one more: the old ones are not sorted again.
func mergeRows[T any](b *builder, at rowRef, old, add []T, of func(T) object) []T {
	stands := func(row T) bool {
		ref, ok := b.rows.get(of(row))
		return ok && ref.tenantID == at.tenantID && ref.place == at.place
	}
	add = sortRows(add, of)
	list := make([]T, 0, len(old)+len(add))
	take := func(row T) {
		if stands(row) {
			list = append(list, row)
		}
	}
	for _, row := range old {
		order := -1
		for len(add) > 0 && order < 0 {
			if order = compareObjects(of(add[0]), of(row)); order <= 0 {
				take(add[0])
				add = add[1:]
			}
		}
		if order != 0 {
			take(row)
		}
	}
	for _, row := range add {
		take(row)
	}
	if len(list) == 0 {
		return nil
	}
	return slices.Clip(list)
}

// sortRows gives rows by id, of several with one id the last.
func sortRows[T any](rows []T, of func(T) object) []T {
	slices.SortStableFunc(rows, func(x, y T) int { return compareObjects(of(x), of(y)) })
	n := 0
	for i, row := range rows {
		if i+1 < len(rows) && of(rows[i+1]) == of(row) {
			continue
		}
		rows[n] = row
		n++
	}
	return rows[:n]
}

func compareObjects(x, y object) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.id, y.id))
}

// steerTenant compiles a tenant's rows for its plan.
func (b *builder) steerTenant(t *tenant) {
	if t.subject == nil || t.rows == nil && t.subject.Steering == nil {
		b.good("steering", t.row.id)
		return
	}
	b.report.Steered++
	next := *t.subject
	var err error
	if next.Steering, err = compileSteering(t.rows, &next); err == nil {
		b.good("steering", t.row.id)
	} else {
		next.Steering = b.lastSteering(t)
		b.fault("steering", t.row.id, t.row.slug, t.row.revision, next.Steering != nil, fmt.Errorf("tenant %s: %w", t.row.slug, err))
	}
	t.subject = &next
	for _, hash := range t.keys {
		if k, ok := b.keys.get(hash); ok {
			b.putKey(hash, *k, &next)
		}
	}
}

// lastSteering is the steering that a tenant had, if it was made for the plan
// that the tenant has.
func (b *builder) lastSteering(t *tenant) *enforcement.Steering {
	if b.previous == nil {
		return nil
	}
	old, ok := b.previous.tenants.get(t.row.id)
	if !ok || old.subject == nil || old.subject.Plan != t.subject.Plan || old.subject.PlanRevision != t.subject.PlanRevision {
		return nil
	}
	return old.subject.Steering
}

// compileSteering makes a subject's steering. A panic below is an error of this
// tenant. What its plan does not have is no fault: after a plan's change an
// override may well wait for its policy to come back.
func compileSteering(rows *tenantRows, s *enforcement.Subject) (made *enforcement.Steering, err error) {
	defer func() {
		if r := recover(); r != nil {
			made, err = nil, fmt.Errorf("compiling what was set beside its plan panicked: %v", r)
		}
	}()
	if rows == nil || rows.unset() {
		return nil, nil
	}
	made, _ = enforcement.CompileSteering(rows.spec, s.Plan, s.PlanRevision)
	return made, nil
}

// ends gives, for each bucket of the index of rows, when the first of its rows
// ends; 0: none does. Only buckets that were written are looked through.
func (b *builder) ends(rows *table[object, rowRef]) *[buckets]int64 {
	if rows == b.base.rows {
		return b.base.ends
	}
	var ends [buckets]int64
	if b.base.ends != nil {
		ends = *b.base.ends
	}
	for i := range ends {
		if !b.rows.owned[i] {
			continue
		}
		ends[i] = 0
		for _, ref := range rows.bucket[i] {
			ends[i] = earlier(ends[i], ref.until)
		}
	}
	return &ends
}

// earlier is the earlier of two ends, of which 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// NextEnd is when the first of the overrides, list entries and blocks that are
// in the snapshot ends; the zero time when none does. It may be past: what has
// ended stays until it is removed from the store.
func (s *Snapshot) NextEnd() time.Time {
	if s.nextEnd == 0 {
		return time.Time{}
	}
	return time.UnixMicro(s.nextEnd)
}
