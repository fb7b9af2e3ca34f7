package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/cow"
	"github.com/headgate/headgate/internal/exceptions"
)

// A snapshot has the exceptions of each tenant in two forms: the rows, and Subject.Exceptions,
// which is compiled from the rows. If some rows change, the builder edits Subject.Exceptions, and
// the cost depends only on the number of changed rows. In two cases the builder compiles
// Subject.Exceptions from all rows: after a full reload, and if the tenant gets another plan or
// another version of its plan.

// tenantRows contains the exceptions of one tenant by ID. The field bad has the IDs of the invalid
// rows; the other maps have the valid rows. A tenantRows does not change after its snapshot is
// complete. The next builder copies only the parts that it changes.
type tenantRows struct {
	deny, allow cow.Map[string, *enforcement.ListEntry]
	blocks      cow.Map[string, *enforcement.Block]
	overrides   cow.Map[string, *enforcement.Override]
	grants      cow.Map[string, *enforcement.Grant]
	changed     map[string]int64 // revision at which the overrides of each policy last changed; see enforcement.ExceptionSpec.Changed
	bad         cow.Map[object, struct{}]
}

func (r *tenantRows) empty() bool { return r.unset() && r.bad.Len() == 0 }

// unset reports whether the tenant has no valid rows, so that there is nothing to compile.
func (r *tenantRows) unset() bool {
	return r.deny.Len()+r.allow.Len()+r.blocks.Len()+r.overrides.Len()+r.grants.Len()+len(r.changed) == 0
}

// all calls yield for every row, valid or invalid. It does not call yield for policy changes. It
// stops when yield returns false.
func (r *tenantRows) all(yield func(object) bool) {
	for _, list := range []*cow.Map[string, *enforcement.ListEntry]{&r.deny, &r.allow} {
		for id := range list.All {
			if !yield(object{"list_entry", id}) {
				return
			}
		}
	}
	for id := range r.blocks.All {
		if !yield(object{"block", id}) {
			return
		}
	}
	for id := range r.overrides.All {
		if !yield(object{"override", id}) {
			return
		}
	}
	for id := range r.grants.All {
		if !yield(object{"grant", id}) {
			return
		}
	}
	for o := range r.bad.All {
		if !yield(o) {
			return
		}
	}
}

// rows returns all rows in the form that package enforcement compiles.
func (r *tenantRows) rows() enforcement.ExceptionRows {
	return enforcement.ExceptionRows{
		Deny: values(&r.deny), Allow: values(&r.allow), Blocks: values(&r.blocks), Overrides: values(&r.overrides), Grants: values(&r.grants),
	}
}

func values[T any](m *cow.Map[string, *T]) []*T {
	list := make([]*T, 0, m.Len())
	for _, row := range m.All {
		list = append(list, row)
	}
	return list
}

// A rowRef says where the row of an exception is stored in the snapshot: the tenant, and the
// map in its tenantRows.
type rowRef struct {
	tenantID string
	place    place
	// until is the time at which the exception ends, in microseconds since the epoch. It is 0 if
	// the exception never ends or the row is invalid.
	until int64
}

// A place is one of the maps in tenantRows.
type place uint8

const (
	leftOut place = iota // the row is invalid
	amongOverrides
	amongDenied
	amongAllowed
	amongBlocks
	amongGrants
	places
)

// exceptionCounts contains the numbers of stored exceptions by kind.
type exceptionCounts struct {
	rows    [places]int
	changes int // number of policy changes
}

func (z *exceptionCounts) all() int {
	n := z.changes
	for _, rows := range z.rows {
		n += rows
	}
	return n
}

// A rowEdit collects the changes that a builder makes to the exceptions of one tenant.
type rowEdit struct {
	rows           *tenantRows // the rows after the edit; empty if the tenant is removed
	added, removed enforcement.ExceptionRows
	changed        bool // set if this edit has copied rows.changed and may therefore write to it
}

// touch returns the rowEdit of a tenant. If it does not exist, touch creates it. At the end, the
// builder compiles the exceptions of each tenant that has a rowEdit.
func (b *builder) touch(tenantID string) *rowEdit {
	e, ok := b.rowEdits[tenantID]
	if !ok {
		e = &rowEdit{rows: new(tenantRows)}
		if t, known := b.tenants.Get(tenantID); known && t.rows != nil {
			*e.rows = *t.rows
		}
		b.rowEdits[tenantID] = e
	}
	return e
}

// putRow stores ref as the place of the row o. If the row was stored in another place before,
// putRow removes it from there.
func (b *builder) putRow(o object, ref rowRef) *rowEdit {
	b.dropRow(o)
	b.rows.Put(b.by, o, ref)
	b.size.rows[ref.place]++
	return b.touch(ref.tenantID)
}

func (b *builder) dropRow(o object) {
	ref, ok := b.rows.Get(o)
	if !ok {
		return
	}
	b.rows.Delete(b.by, o)
	b.size.rows[ref.place]--
	e := b.touch(ref.tenantID)
	switch ref.place {
	case amongDenied:
		e.removed.Deny = take(b.by, &e.rows.deny, o.id, e.removed.Deny)
	case amongAllowed:
		e.removed.Allow = take(b.by, &e.rows.allow, o.id, e.removed.Allow)
	case amongBlocks:
		e.removed.Blocks = take(b.by, &e.rows.blocks, o.id, e.removed.Blocks)
	case amongGrants:
		e.removed.Grants = take(b.by, &e.rows.grants, o.id, e.removed.Grants)
	case amongOverrides:
		e.removed.Overrides = take(b.by, &e.rows.overrides, o.id, e.removed.Overrides)
	default:
		e.rows.bad.Delete(b.by, o)
	}
}

// take removes the row with this ID from the map m. It appends the row to removed and returns the
// result.
func take[T any](by *cow.Owner, m *cow.Map[string, *T], id string, removed []*T) []*T {
	row, _ := m.Get(id)
	m.Delete(by, id)
	return append(removed, row)
}

// dropRows removes all exceptions of a tenant that was deleted.
func (b *builder) dropRows(t *tenant) {
	if t.rows == nil {
		return
	}
	for o := range t.rows.all {
		b.dropRow(o)
		b.good(o.kind, o.id)
	}
	b.size.changes -= len(t.rows.changed)
	b.touch(t.row.id).rows.changed = nil
	b.good("steering", t.row.id)
}

// addExceptions validates the changed rows and adds the valid ones. An invalid row has no effect,
// and Problems lists the row until it is deleted. An invalid entry of a deny list has no effect
// either, because it does not say which values to deny.
func (b *builder) addExceptions(c *Changes) {
	for i := range c.Overrides {
		r := &c.Overrides[i]
		o, err := readOverride(r, c.Revision)
		if b.usable("override", r.ID, r.TenantID, r.Revision, err) {
			e := b.putRow(object{"override", r.ID}, rowRef{r.TenantID, amongOverrides, o.Until})
			e.rows.overrides.Put(b.by, r.ID, &o)
			e.added.Overrides = append(e.added.Overrides, &o)
		}
	}
	for i := range c.Entries {
		r := &c.Entries[i]
		n, err := readListEntry(r)
		switch {
		case !b.usable("list_entry", r.ID, r.TenantID, r.Revision, err):
		case r.List == exceptions.Deny:
			e := b.putRow(object{"list_entry", r.ID}, rowRef{r.TenantID, amongDenied, n.Until})
			e.rows.deny.Put(b.by, r.ID, &n)
			e.added.Deny = append(e.added.Deny, &n)
		default:
			e := b.putRow(object{"list_entry", r.ID}, rowRef{r.TenantID, amongAllowed, n.Until})
			e.rows.allow.Put(b.by, r.ID, &n)
			e.added.Allow = append(e.added.Allow, &n)
		}
	}
	for i := range c.Blocks {
		r := &c.Blocks[i]
		block, err := readBlock(r)
		if b.usable("block", r.ID, r.TenantID, r.Revision, err) {
			e := b.putRow(object{"block", r.ID}, rowRef{r.TenantID, amongBlocks, block.Until})
			e.rows.blocks.Put(b.by, r.ID, &block)
			e.added.Blocks = append(e.added.Blocks, &block)
		}
	}
	for i := range c.Grants {
		r := &c.Grants[i]
		grant, err := readGrant(r, c.Revision)
		if b.usable("grant", r.ID, r.TenantID, r.Revision, err) {
			e := b.putRow(object{"grant", r.ID}, rowRef{r.TenantID, amongGrants, grant.Until})
			e.rows.grants.Put(b.by, r.ID, &grant)
			e.added.Grants = append(e.added.Grants, &grant)
		}
	}
	for i := range c.PolicyChanges {
		b.addChange(&c.PolicyChanges[i])
	}
}

// usable reports whether a row is valid: err is nil, and the row has an ID and a tenant. If the row
// is invalid, usable records the problem and removes the earlier version of the row.
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
	if t, ok := b.tenants.Get(tenantID); ok {
		name = t.row.slug
	}
	b.fault(kind, id, name, revision, false, fmt.Errorf("%s %s: %w", kind, id, err))
	o := object{kind, id}
	if b.dropRow(o); id != "" && tenantID != "" {
		b.putRow(o, rowRef{tenantID: tenantID}).rows.bad.Put(b.by, o, struct{}{})
	}
	return false
}

// addChange records the revision at which the overrides of a policy last changed for a tenant. It
// rejects a revision that is higher than the newest one. With such a revision, counters would not
// be converted to later limits.
func (b *builder) addChange(r *exceptions.Change) {
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
	if !e.changed {
		e.rows.changed, e.changed = maps.Clone(e.rows.changed), true
	}
	before := len(e.rows.changed)
	defer func() { b.size.changes += len(e.rows.changed) - before }()
	if err != nil {
		name := ""
		if t, ok := b.tenants.Get(r.TenantID); ok {
			name = t.row.slug
		}
		b.fault("policy_change", id, name, r.Revision, false, fmt.Errorf("policy_change %s: %w", id, err))
		delete(e.rows.changed, r.Policy)
		return
	}
	b.good("policy_change", id)
	if e.rows.changed == nil {
		e.rows.changed = map[string]int64{}
	}
	e.rows.changed[r.Policy] = r.Revision
}

// updateExceptions compiles the exceptions of each tenant that has changed rows, another plan,
// or another version of its plan.
func (b *builder) updateExceptions() {
	for id, e := range b.rowEdits {
		t, ok := b.tenants.Get(id)
		if !ok {
			if e.rows.empty() {
				continue
			}
			t = b.record(id) // changed exceptions may be read before the row of their tenant
		}
		t = b.mutable(t)
		if len(e.rows.changed) == 0 {
			e.rows.changed = nil
		}
		if t.rows = e.rows; e.rows.empty() {
			t.rows = nil
		}
		b.updateTenantExceptions(t, e)
	}
}

func (b *builder) updateTenantExceptions(t *tenant, e *rowEdit) {
	if t.subject == nil || t.rows == nil && t.subject.Exceptions == nil {
		b.good("steering", t.row.id)
		return
	}
	b.report.ExceptionsCompiled++
	next := *t.subject
	var err error
	if next.Exceptions, err = compileExceptions(t, e); err == nil {
		b.good("steering", t.row.id)
	} else {
		next.Exceptions = b.lastExceptions(t)
		b.fault("steering", t.row.id, t.row.slug, t.row.revision, next.Exceptions != nil, fmt.Errorf("tenant %s: %w", t.row.slug, err))
	}
	t.exceptionsCompiled = err == nil && next.Exceptions != nil
	t.subject = &next
	for _, hash := range t.keys {
		if k, ok := b.keys.Get(hash); ok {
			b.putKey(hash, *k, &next)
		}
	}
}

// lastExceptions returns the compiled exceptions of the tenant in the previous snapshot. It
// returns nil if they were compiled for another plan or another version of the plan.
func (b *builder) lastExceptions(t *tenant) *enforcement.Exceptions {
	if b.previous == nil {
		return nil
	}
	old, ok := b.previous.tenants.Get(t.row.id)
	if !ok || old.subject == nil || old.subject.Plan != t.subject.Plan || old.subject.PlanRevision != t.subject.PlanRevision {
		return nil
	}
	return old.subject.Exceptions
}

// compileExceptions compiles the exceptions of a tenant after the edit e. If the compilation
// panics, it returns an error. An override of a policy that the plan does not have is not an
// error, because a later version of the plan may have this policy.
func compileExceptions(t *tenant, e *rowEdit) (made *enforcement.Exceptions, err error) {
	defer func() {
		if r := recover(); r != nil {
			made, err = nil, fmt.Errorf("compiling its exceptions panicked: %v", r)
		}
	}()
	if t.rows == nil || t.rows.unset() {
		return nil, nil
	}
	s := t.subject
	if t.exceptionsCompiled && s.Exceptions.For(s.Plan, s.PlanRevision) {
		made, _ = s.Exceptions.Edit(e.removed, e.current(), t.rows.changed)
		return made, nil
	}
	made, _ = enforcement.NewExceptions(s.Plan, s.PlanRevision).Edit(enforcement.ExceptionRows{}, t.rows.rows(), t.rows.changed)
	return made, nil
}

// current returns the rows that the edit added. It leaves out rows that later changes of the same
// edit replaced or removed.
func (e *rowEdit) current() enforcement.ExceptionRows {
	return enforcement.ExceptionRows{
		Deny:      current(&e.rows.deny, e.added.Deny, func(n *enforcement.ListEntry) string { return n.ID }),
		Allow:     current(&e.rows.allow, e.added.Allow, func(n *enforcement.ListEntry) string { return n.ID }),
		Blocks:    current(&e.rows.blocks, e.added.Blocks, func(n *enforcement.Block) string { return n.ID }),
		Overrides: current(&e.rows.overrides, e.added.Overrides, func(o *enforcement.Override) string { return o.ID }),
		Grants:    current(&e.rows.grants, e.added.Grants, func(g *enforcement.Grant) string { return g.ID }),
	}
}

func current[T any](m *cow.Map[string, *T], added []*T, id func(*T) string) []*T {
	return slices.DeleteFunc(added, func(row *T) bool {
		in, _ := m.Get(id(row))
		return in != row
	})
}

// chunkEnds returns one element for each chunk of the index of rows: the earliest end of an
// exception in this chunk, or 0 if no exception in it ends. It computes only the elements of chunks
// that have changed.
func (b *builder) chunkEnds() []int64 {
	ends := make([]int64, b.rows.NumChunks())
	b.rows.Chunks(b.by, func(i int, rows map[object]rowRef, written bool) {
		if !written {
			ends[i] = b.oldEnds[i] // a chunk that has no element in oldEnds is new, so it has changed
			return
		}
		for _, ref := range rows {
			ends[i] = earlier(ends[i], ref.until)
		}
	})
	return ends
}

// earlier returns the earlier of two ends. 0 means that there is no end.
func earlier(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// NextEnd returns the earliest end of an exception, or the zero time if no exception ends. The
// earliest end may be in the past, because an expired exception stays in the snapshot until it is
// deleted from the database.
func (s *Snapshot) NextEnd() time.Time {
	if s.nextEnd == 0 {
		return time.Time{}
	}
	return time.UnixMicro(s.nextEnd)
}
