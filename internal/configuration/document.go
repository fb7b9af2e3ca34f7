package configuration

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Document contains plans and tenants by slug. If a map is nil, the document does not manage
// these objects: Apply neither changes nor reports them.
type Document struct {
	Plans   map[string]plans.Document // the published documents, not the drafts
	Tenants map[string]Tenant
}

// A Tenant is a tenant in a Document, with its overrides and its entries of the allow list and the
// deny list. If Overrides is nil, the document does not manage the overrides of the tenant: Apply
// neither changes nor reports them. If Lists is nil, the same holds for the list entries.
type Tenant struct {
	tenants.Document
	// Overrides is ordered by creation. If several overrides apply to a key, the last one in
	// this order has precedence.
	Overrides []exceptions.NewOverride
	Lists     []exceptions.NewEntry
}

// canonical returns o in the form in which the store returns an override. With this form, two
// overrides are equal even if they spell the same value differently. canonical does not change
// invalid values, because the service rejects them later.
func canonical(o exceptions.NewOverride) exceptions.NewOverride {
	if v, fault := exceptions.CanonicalValue(o.Attribute, o.Value, false); o.Value != "" && fault == "" {
		o.Value = v
	}
	if v, fault := exceptions.CanonicalValue(o.Attribute, o.Prefix, true); o.Prefix != "" && fault == "" {
		o.Prefix = v
	}
	o.ExpiresAt = instant(o.ExpiresAt)
	o.Limits = slices.Clone(o.Limits)
	slices.SortFunc(o.Limits, func(a, b enforcement.OverrideLimit) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return o
}

func sameOverride(a, b exceptions.NewOverride) bool {
	return a.Policy == b.Policy && a.Attribute == b.Attribute && a.Value == b.Value && a.Prefix == b.Prefix && a.Factor == b.Factor &&
		slices.Equal(a.Limits, b.Limits) && a.Reason == b.Reason && a.ExpiresAt.Equal(b.ExpiresAt)
}

// A scope identifies the keys to which an override applies.
type scope struct{ policy, attribute, value, prefix string }

func scopeOf(o exceptions.NewOverride) scope { return scope{o.Policy, o.Attribute, o.Value, o.Prefix} }

// A newest contains overrides of a tenant, each with a number. A newer override has a higher
// number. For another override, it finds the newest override that may apply to the same keys. Two
// overrides of a policy may be for single values of the same attribute. They then apply to the same
// keys only if the values are equal. All other pairs of overrides of a policy count as overlapping.
// The zero value is empty.
type newest struct {
	wide   map[string]int    // by policy: the highest number of an override that is not for a single value
	single map[[2]string]int // by policy and attribute: the highest number of an override for a single value
	value  map[scope]int
}

func (n *newest) add(o exceptions.NewOverride, number int) {
	if n.wide == nil {
		*n = newest{map[string]int{}, map[[2]string]int{}, map[scope]int{}}
	}
	// The maps contain each number plus 1, so that 0 means that there is none.
	if o.Value == "" {
		n.wide[o.Policy] = max(n.wide[o.Policy], number+1)
		return
	}
	at := [2]string{o.Policy, o.Attribute}
	n.single[at] = max(n.single[at], number+1)
	n.value[scopeOf(o)] = max(n.value[scopeOf(o)], number+1)
}

// overlapping returns the highest number of an added override that may apply to the same keys
// as o. If there is none, it returns -1.
func (n *newest) overlapping(o exceptions.NewOverride) int {
	found := max(n.wide[o.Policy], n.value[scopeOf(o)])
	for at, number := range n.single {
		if at[0] == o.Policy && (o.Value == "" || at[1] != o.Attribute) {
			found = max(found, number)
		}
	}
	return found - 1
}

func overrideOf(o exceptions.Override) exceptions.NewOverride {
	return canonical(exceptions.NewOverride{
		Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Factor: o.Factor, Limits: o.Limits,
		Reason: o.Reason, ExpiresAt: o.ExpiresAt,
	})
}

func canonicalEntry(e exceptions.NewEntry) exceptions.NewEntry {
	if v, fault := exceptions.CanonicalValue(e.Attribute, e.Value, true); fault == "" {
		e.Value = v
	}
	e.ExpiresAt = instant(e.ExpiresAt)
	return e
}

func entryOf(e exceptions.Entry) exceptions.NewEntry {
	return exceptions.NewEntry{List: e.List, Attribute: e.Attribute, Value: e.Value, Reason: e.Reason, ExpiresAt: instant(e.ExpiresAt)}
}

func sameEntry(a, b exceptions.NewEntry) bool {
	return valueOf(a) == valueOf(b) && a.Reason == b.Reason && a.ExpiresAt.Equal(b.ExpiresAt)
}

// valueOf returns the fields that identify a list entry. No two entries of a tenant have equal
// values in these fields.
func valueOf(e exceptions.NewEntry) [3]string { return [3]string{string(e.List), e.Attribute, e.Value} }

// instant returns a time in UTC, in the precision with which the services store times.
func instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// describeTenant returns the JSON form of a tenant document, as the audit log contains it.
func describeTenant(d tenants.Document) (json.RawMessage, error) {
	text, err := tenants.Tenant{Document: d}.JSON()
	if err != nil {
		return nil, err
	}
	var is struct {
		Tenant json.RawMessage `json:"tenant"`
	}
	err = json.Unmarshal(text, &is)
	return is.Tenant, err
}

// tenantChanges returns the changes from one tenant document to another: one for each field
// that differs. at is the pointer of the tenant.
func tenantChanges(at string, from, to tenants.Document) ([]plans.Change, error) {
	var before, after map[string]json.RawMessage
	for fields, d := range map[*map[string]json.RawMessage]tenants.Document{&before: from, &after: to} {
		text, err := describeTenant(d)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, fields); err != nil {
			return nil, err
		}
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	var out []plans.Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(before[name], after[name]) {
			out = append(out, plans.Change{Field: at + "/" + name, From: before[name], To: after[name]})
		}
	}
	return out, nil
}

// describe returns the override that o would create, without an ID. A plans.Change contains its
// JSON form.
func describe(o exceptions.NewOverride) exceptions.Override {
	return exceptions.Override{
		Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Factor: o.Factor, Limits: o.Limits,
		Reason: o.Reason, ExpiresAt: o.ExpiresAt,
	}
}

func describeEntry(e exceptions.NewEntry) exceptions.Entry {
	return exceptions.Entry{List: e.List, Attribute: e.Attribute, Value: e.Value, Reason: e.Reason, ExpiresAt: e.ExpiresAt}
}

// under returns the invalid fields in err. It adds prefix to the beginning of their pointers. It
// returns false if err is not a problem of the kind Invalid, Malformed or Conflict.
func under(prefix string, err error) (problem.Fields, bool) {
	if !problem.Is(err, problem.Invalid) && !problem.Is(err, problem.Malformed) && !problem.Is(err, problem.Conflict) {
		return nil, false
	}
	p := problemOf(err)
	if p == nil {
		return nil, false
	}
	var f problem.Fields
	for _, field := range p.Fields {
		f.Add(prefix+field.Pointer, "%s", field.Message)
	}
	if len(f) == 0 {
		f.Add(prefix, "%s", p.Message)
	}
	return f, true
}
