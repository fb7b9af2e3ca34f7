package enforcement

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An Exceptions that was edited row by row equals one that is compiled from the remaining rows.
// Earlier versions do not change.
func TestEditEqualsCompile(t *testing.T) {
	t.Parallel()
	var specs []RuleSpec
	for i, by := range [][]string{{"user", "ip/64"}, {"user"}, nil} {
		l := RuleLimit{Limit: Limit{Name: "l1", Algorithm: TokenBucket, Quota: 10, Window: time.Minute}, Cell: uint32(i)}
		l.Meter = l.Compile(1)
		specs = append(specs, RuleSpec{Policy: fmt.Sprint("p", i), CountBy: by, Limits: []RuleLimit{l}})
	}
	p, err := CompilePlan("plan", 1, specs)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		const planRevision = 3
		left, changed, revision := ExceptionRows{}, map[string]int64{}, int64(planRevision)
		empty := NewExceptions(p, planRevision)
		s, before := empty, empty
		for edit := range rapid.IntRange(1, 12).Draw(t, "edits") {
			revision++
			var removed, added ExceptionRows
			changed = maps.Clone(changed)
			removed.Deny = drawRemoved(t, &left.Deny)
			removed.Allow = drawRemoved(t, &left.Allow)
			removed.Blocks = drawRemoved(t, &left.Blocks)
			removed.Overrides = drawRemoved(t, &left.Overrides)
			for _, o := range removed.Overrides {
				changed[o.Policy] = revision // as the store does
			}
			for i := range rapid.IntRange(0, 3).Draw(t, "added") {
				id, until := fmt.Sprint(edit, ".", i), rapid.SampledFrom([]int64{10, 20, 30}).Draw(t, "until")
				policy := rapid.SampledFrom([]string{"p0", "p1", "p2", "gone"}).Draw(t, "policy")
				scope := rapid.SampledFrom([]Override{
					{},
					{Attribute: "user", Value: "ann"},
					{Attribute: "user", Value: "bob"},
					{Attribute: "user", Prefix: "a"},
					{Attribute: "user", Prefix: "an"},
					{Attribute: "ip", Value: "192.0.2.1"},
					{Attribute: "ip", Prefix: "192.0.2.0/24"},
					{Attribute: "ip", Prefix: "2001:db8::/80"},
					{Attribute: "app", Value: "x"},
				}).Draw(t, "scope")
				entry := &ListEntry{ID: id, Attribute: "user", Value: "ann", Until: rapid.SampledFrom([]int64{0, until}).Draw(t, "end")}
				if scope.Attribute == "ip" {
					entry.Attribute, entry.Value = "ip", scope.Value+scope.Prefix
				}
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					added.Deny = append(added.Deny, entry)
				case 1:
					added.Allow = append(added.Allow, entry)
				case 2:
					b := &Block{ID: id, Policy: policy, Until: until}
					if scope.Attribute != "" {
						b.Key = []Attribute{{scope.Attribute, scope.Value}}
					}
					added.Blocks = append(added.Blocks, b)
				default:
					o := scope
					o.ID, o.Policy, o.Factor, o.Revision, o.Until = id, policy, 2000, revision, until
					added.Overrides, changed[policy] = append(added.Overrides, &o), revision
				}
			}
			left.Deny, left.Allow = append(left.Deny, added.Deny...), append(left.Allow, added.Allow...)
			left.Blocks, left.Overrides = append(left.Blocks, added.Blocks...), append(left.Overrides, added.Overrides...)

			whole, _ := empty.Edit(ExceptionRows{}, left, changed)
			was, _ := before.Edit(ExceptionRows{}, ExceptionRows{}, before.changed)
			next, _ := s.Edit(removed, added, changed)
			if !reflect.DeepEqual(next, whole) {
				t.Fatalf("edit %d: %+v, compiled %+v", edit, next, whole)
			}
			if again, _ := before.Edit(ExceptionRows{}, ExceptionRows{}, before.changed); !reflect.DeepEqual(again, was) {
				t.Fatalf("edit %d changed the version before", edit)
			}
			if next == nil {
				next = empty
			}
			before, s = s, next
		}
	})
}

// drawRemoved removes some rows.
func drawRemoved[T any](t *rapid.T, rows *[]*T) (removed []*T) {
	*rows = slices.DeleteFunc(slices.Clone(*rows), func(row *T) bool {
		if rapid.IntRange(0, 4).Draw(t, "remove") > 0 {
			return false
		}
		removed = append(removed, row)
		return true
	})
	return removed
}
