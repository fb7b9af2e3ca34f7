package plans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// A Diff contains the differences between two documents of a plan, for example between its
// published version and its draft.
type Diff struct {
	// Published is the number of the published version. If no version is published, it is 0,
	// and Added contains every policy of the draft.
	Published int
	// Fields contains the changed fields of the plan that are not in a policy.
	Fields []Change
	// Added contains the policies that are only in the draft, in the order of the draft. Removed
	// contains the policies that are only in the published version.
	Added, Removed []Policy
	// Changed contains the policies that differ, in the order of the draft.
	Changed []PolicyChange
	// Reordered is set if the policies that are in both documents have another order. The order of
	// policies affects the order of limits in responses, but not the decisions.
	Reordered bool
}

// Empty reports whether there are no differences. Publishing the draft would then change nothing.
func (d Diff) Empty() bool {
	return len(d.Fields) == 0 && len(d.Added) == 0 && len(d.Removed) == 0 && len(d.Changed) == 0 && !d.Reordered
}

// List returns all differences as one list of changed values: first the plan's own fields, then the
// fields of changed, added and removed policies. A pointer contains the slug of a policy in place
// of an index, like "/policies/login/mode".
func (d Diff) List() ([]Change, error) {
	list := slices.Clone(d.Fields)
	for _, p := range d.Changed {
		for _, c := range p.Fields {
			c.Field = "/policies/" + p.Slug + c.Field
			list = append(list, c)
		}
	}
	for _, p := range d.Added {
		text, err := enforcement.MarshalJSON(p)
		if err != nil {
			return nil, err
		}
		list = append(list, Change{Field: "/policies/" + p.Slug, To: text})
	}
	for _, p := range d.Removed {
		text, err := enforcement.MarshalJSON(p)
		if err != nil {
			return nil, err
		}
		list = append(list, Change{Field: "/policies/" + p.Slug, From: text})
	}
	return list, nil
}

// A PolicyChange contains the changed fields of a policy that is in both documents.
type PolicyChange struct {
	Slug   string
	Fields []Change
}

// A Change is a field with its old and its new value.
type Change struct {
	// Field is the JSON pointer of the field in the plan or policy. The pointer contains the name
	// of a limit in place of an index, like "/limits/l1/quota". "/limits" stands for the list of
	// the names of all limits.
	Field string
	// From and To are the old and the new JSON value. From is empty if the old document does not
	// have the field. To is empty if the new document does not have the field.
	From, To json.RawMessage
}

// Compare returns the differences from one document to another.
func Compare(from, to Document) (Diff, error) {
	var d Diff
	d.Fields = changes(
		[]field{{"/name", text(from.c.Name)}, {"/description", text(from.c.Description)}},
		[]field{{"/name", text(to.c.Name)}, {"/description", text(to.c.Description)}})
	before, after := bySlug(from.Policies()), bySlug(to.Policies())
	var oldOrder, newOrder []string
	for _, p := range from.Policies() {
		if _, stays := after[p.Slug]; stays {
			oldOrder = append(oldOrder, p.Slug)
		} else {
			d.Removed = append(d.Removed, p)
		}
	}
	for _, p := range to.Policies() {
		old, was := before[p.Slug]
		if !was {
			d.Added = append(d.Added, p)
			continue
		}
		newOrder = append(newOrder, p.Slug)
		fields, err := comparePolicies(old, p)
		if err != nil {
			return Diff{}, fmt.Errorf("compare policy %s: %w", p.Slug, err)
		}
		if len(fields) > 0 {
			d.Changed = append(d.Changed, PolicyChange{Slug: p.Slug, Fields: fields})
		}
	}
	d.Reordered = !slices.Equal(oldOrder, newOrder)
	return d, nil
}

func bySlug(policies []Policy) map[string]Policy {
	out := make(map[string]Policy, len(policies))
	for _, p := range policies {
		out[p.Slug] = p
	}
	return out
}

// A field is one value in a document. Compare compares documents field by field.
type field struct {
	pointer string
	value   json.RawMessage
}

func text(s string) json.RawMessage {
	b, _ := enforcement.MarshalJSON(s) // marshaling a string cannot fail
	return b
}

func comparePolicies(from, to Policy) ([]Change, error) {
	old, err := policyFields(from)
	if err != nil {
		return nil, err
	}
	now, err := policyFields(to)
	if err != nil {
		return nil, err
	}
	return changes(old, now), nil
}

// policyFields returns the fields of a policy in the order of its JSON form. Each member of
// match and of a limit is a separate field.
func policyFields(p Policy) ([]field, error) {
	whole, err := enforcement.MarshalJSON(p)
	if err != nil {
		return nil, err
	}
	var out []field
	for name, value := range members(whole) {
		switch name {
		case "slug":
		case "match":
			for name, value := range members(value) {
				if name != "attributes" {
					out = append(out, field{"/match/" + name, value})
				}
			}
			for _, name := range slices.Sorted(maps.Keys(p.Match.Attributes)) {
				out = append(out, field{"/match/attributes/" + problem.Escape(name), text(p.Match.Attributes[name])})
			}
		case "limits":
			limits, err := limitFields(p.Limits)
			if err != nil {
				return nil, err
			}
			out = append(out, limits...)
		default:
			out = append(out, field{"/" + name, value})
		}
	}
	return out, nil
}

func limitFields(limits []enforcement.Limit) ([]field, error) {
	names := []string{}
	var out []field
	for _, l := range limits {
		names = append(names, l.Name)
		whole, err := l.MarshalJSON()
		if err != nil {
			return nil, err
		}
		for name, value := range members(whole) {
			if name != "name" {
				out = append(out, field{"/limits/" + l.Name + "/" + name, value})
			}
		}
	}
	list, err := enforcement.MarshalJSON(names)
	return slices.Insert(out, 0, field{"/limits", list}), err
}

// members returns an iterator over the names and the values of the members of a JSON object, in
// their order.
func members(object json.RawMessage) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		d := json.NewDecoder(bytes.NewReader(object))
		_, _ = d.Token() // the opening brace; the JSON is valid, because this package wrote it
		for d.More() {
			name, _ := d.Token()
			var value json.RawMessage
			if d.Decode(&value) != nil || !yield(name.(string), value) {
				return
			}
		}
	}
}

// changes returns the fields that differ. The fields of to come first, in the order of to. The
// fields that are only in from follow.
func changes(from, to []field) []Change {
	before := make(map[string]json.RawMessage, len(from))
	for _, f := range from {
		before[f.pointer] = f.value
	}
	var out []Change
	for _, f := range to {
		old, was := before[f.pointer]
		delete(before, f.pointer)
		if !was || !bytes.Equal(old, f.value) {
			out = append(out, Change{Field: f.pointer, From: old, To: f.value})
		}
	}
	for _, f := range from {
		if _, only := before[f.pointer]; only {
			out = append(out, Change{Field: f.pointer, From: f.value})
		}
	}
	return out
}
