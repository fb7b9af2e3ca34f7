package plans

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/headgate/headgate/internal/problem"
)

// A Diff is what publishing the draft would change for tenants.
type Diff struct {
	// Published is the number of the version compared with; 0: none yet, and
	// everything is added.
	Published int
	// Fields of the plan itself.
	Fields []Change
	// Added and Removed policies, in the order of the draft and of the version.
	Added, Removed []Policy
	// Changed policies, in the order of the draft.
	Changed []PolicyChange
	// Reordered: the policies that both have stand in another order, which
	// shows in answers and changes no decision.
	Reordered bool
}

// Empty reports whether publishing would change nothing.
func (d Diff) Empty() bool {
	return len(d.Fields) == 0 && len(d.Added) == 0 && len(d.Removed) == 0 && len(d.Changed) == 0 && !d.Reordered
}

// A PolicyChange is a policy that both documents have.
type PolicyChange struct {
	Slug   string
	Fields []Change
}

// A Change is one field that differs.
type Change struct {
	// Field is its JSON pointer in the plan or policy; limits are told apart by
	// name: "/limits/l1/quota". "/limits" itself is the order of their names.
	Field string
	// From and To are the JSON values; empty where there was or is none.
	From, To json.RawMessage
}

// Compare tells what differs between two documents.
func Compare(from, to Document) (Diff, error) {
	from, to = Normalise(from), Normalise(to)
	var d Diff
	var err error
	d.Fields, err = changes(
		[]field{{"/name", from.Name}, {"/description", from.Description}},
		[]field{{"/name", to.Name}, {"/description", to.Description}})
	if err != nil {
		return Diff{}, err
	}
	before, after := bySlug(from.Policies), bySlug(to.Policies)
	for _, p := range from.Policies {
		if _, stays := after[p.Slug]; !stays {
			d.Removed = append(d.Removed, p)
		}
	}
	var oldOrder, newOrder []string
	for _, p := range from.Policies {
		if _, stays := after[p.Slug]; stays {
			oldOrder = append(oldOrder, p.Slug)
		}
	}
	for _, p := range to.Policies {
		old, was := before[p.Slug]
		if !was {
			d.Added = append(d.Added, p)
			continue
		}
		newOrder = append(newOrder, p.Slug)
		fields, err := changes(policyFields(old), policyFields(p))
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

type field struct {
	pointer string
	value   any
}

// policyFields takes a normalised policy apart, into what is changed alone.
func policyFields(p Policy) []field {
	j := policyJSON(p)
	out := []field{{"/description", j.Description}, {"/match/methods", j.Match.Methods}, {"/match/path", j.Match.Path}}
	for _, name := range slices.Sorted(maps.Keys(j.Match.Attributes)) {
		out = append(out, field{"/match/attributes/" + problem.Escape(name), j.Match.Attributes[name]})
	}
	out = append(out, field{"/count_by", j.CountBy}, field{"/missing", j.Missing}, field{"/replaces", j.Replaces},
		field{"/mode", j.Mode}, field{"/on_failure", j.OnFailure}, field{"/consistency", j.Consistency})
	names := []string{}
	for _, l := range j.Limits {
		names = append(names, l.Name)
	}
	out = append(out, field{"/limits", names})
	for _, l := range j.Limits {
		at := "/limits/" + l.Name
		out = append(out, field{at + "/algorithm", l.Algorithm}, field{at + "/quota", l.Quota}, field{at + "/window", l.Window})
		if l.Burst != 0 {
			out = append(out, field{at + "/burst", l.Burst})
		}
		if l.Anchor != "" {
			out = append(out, field{at + "/anchor", l.Anchor})
		}
	}
	return out
}

// changes pairs fields by pointer: those of to in its order, then what only
// from has.
func changes(from, to []field) ([]Change, error) {
	before := make(map[string]any, len(from))
	for _, f := range from {
		before[f.pointer] = f.value
	}
	var out []Change
	note := func(pointer string, old, now any) error {
		c := Change{Field: pointer}
		var err error
		if old != nil {
			c.From, err = marshal(old)
		}
		if now != nil && err == nil {
			c.To, err = marshal(now)
		}
		out = append(out, c)
		return err
	}
	for _, f := range to {
		old, was := before[f.pointer]
		delete(before, f.pointer)
		if was && reflect.DeepEqual(old, f.value) {
			continue
		}
		if err := note(f.pointer, old, f.value); err != nil {
			return nil, err
		}
	}
	for _, f := range from {
		if _, only := before[f.pointer]; only {
			if err := note(f.pointer, f.value, nil); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
