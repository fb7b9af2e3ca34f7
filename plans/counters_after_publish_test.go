package plans

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

func TestRecounts(t *testing.T) {
	t.Parallel()
	first := func(change func(p *Policy)) func(*Content) { return func(d *Content) { change(&d.Policies[0]) } }
	limit := func(change func(l *enforcement.Limit)) func(*Content) {
		return func(d *Content) { change(&d.Policies[0].Limits[0]) }
	}
	for name, c := range map[string]struct {
		edit func(d *Content)
		want string
	}{
		"nothing":                              {func(*Content) {}, ""},
		"description":                          {first(func(p *Policy) { p.Description = "x" }), ""},
		"match":                                {first(func(p *Policy) { p.Match.Path = "/x" }), ""},
		"shadow":                               {first(func(p *Policy) { p.Mode = enforcement.PolicyShadow }), ""},
		"off":                                  {first(func(p *Policy) { p.Mode = enforcement.PolicyOff }), "a l1 dropped"},
		"quota":                                {limit(func(l *enforcement.Limit) { l.Quota = 11 }), "a l1 kept"},
		"window":                               {limit(func(l *enforcement.Limit) { l.Window = time.Hour }), "a l1 kept"},
		"reset":                                {limit(func(l *enforcement.Limit) { l.Quota, l.CarryOver = 11, enforcement.CarryReset }), "a l1 kept reset"},
		"no reset without a change of numbers": {limit(func(l *enforcement.Limit) { l.CarryOver = enforcement.CarryReset }), "a l1 kept"},
		"anchor":                               {limit(func(l *enforcement.Limit) { l.Anchor = enforcement.Clock }), "a l1 fresh anchor"},
		"algorithm":                            {limit(func(l *enforcement.Limit) { l.Algorithm = enforcement.GCRA }), "a l1 fresh algorithm"},
		"both": {func(d *Content) {
			d.Policies[0].Limits[0].Algorithm, d.Policies[0].CountBy = enforcement.SlidingWindowLog, []string{"user"}
		}, "a l1 fresh algorithm count_by"},
		"limit renamed":  {limit(func(l *enforcement.Limit) { l.Name = "burst" }), "a burst fresh, a l1 dropped"},
		"policy renamed": {first(func(p *Policy) { p.Slug = "c" }), "c l1 fresh, a l1 dropped"},
		"burst written out": {func(d *Content) {
			d.Policies[1].Limits[0].Burst = d.Policies[1].Limits[0].Quota
		}, ""},
		"burst": {func(d *Content) { d.Policies[1].Limits[0].Burst = 3 }, "b l1 kept"},
		"gcra":  {func(d *Content) { d.Policies[1].Limits[0].Algorithm = enforcement.GCRA }, "b l1 kept"},
	} {
		to := valid()
		c.edit(&to)
		var got []string
		for _, r := range Recounts(New(valid()), Document{to}) {
			text := fmt.Sprintf("%s %s %s %s", r.Policy, r.Limit, r.Fate, strings.Join(r.Because, " "))
			if r.CarryOver != enforcement.CarryKeep {
				text += r.CarryOver.String()
			}
			got = append(got, strings.TrimSpace(text))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, ", "), c.want)
		}
	}
}
