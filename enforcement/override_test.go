package enforcement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A check skips overrides that can never apply again, because a newer override for the same
// values ends at the same time or later. This does not change which override applies.
func TestOverridesWithoutUse(t *testing.T) {
	t.Parallel()
	l := RuleLimit{Limit: Limit{Name: "l1", Algorithm: FixedWindow, Quota: 10, Window: time.Minute}}
	l.Meter = l.Compile(1)
	p, err := CompilePlan("plan", 1, []RuleSpec{{Policy: "p", CountBy: []string{"user"}, Limits: []RuleLimit{l}}})
	if err != nil {
		t.Fatal(err)
	}
	c := Check{Attributes: []Attribute{{Name: "user", Value: "ann"}}}
	for _, scope := range []Override{{}, {Attribute: "user", Value: "ann"}, {Attribute: "user", Prefix: "an"}} {
		for _, tt := range []struct {
			until []int64 // oldest first
			left  string  // newest first
		}{
			{[]int64{10}, "0"},
			{[]int64{10, 10, 10}, "2"},
			{[]int64{10, 20, 30}, "2"},
			{[]int64{30, 20, 10}, "2 1 0"},
			{[]int64{20, 30, 10, 30, 20}, "4 3"},
		} {
			var spec ExceptionSpec
			for i, until := range tt.until {
				o := scope
				o.ID, o.Policy, o.Factor, o.Revision, o.Until = fmt.Sprint(i), "p", 2000, int64(i+2), until
				spec.Overrides = append(spec.Overrides, o)
			}
			s, faults := CompileExceptions(spec, p, 1)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			var left []string
			s.of(p.Rules[0]).candidates(&c, func(o *override, _ int) { left = append(left, o.ID) })
			if got := strings.Join(left, " "); got != tt.left {
				t.Errorf("%v %v: looks through %s, want %s", scope, tt.until, got, tt.left)
			}
			for now := range int64(40) {
				want := ""
				for i, until := range slices.Backward(tt.until) {
					if now < until {
						want = fmt.Sprint(i)
						break
					}
				}
				got := ""
				if o, _ := s.of(p.Rules[0]).choose(&c, now); o != nil {
					got = o.ID
				}
				if got != want {
					t.Errorf("%v %v at %d: %q, want %q", scope, tt.until, now, got, want)
				}
			}
		}
	}
}
