package snapshot_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/snapshot"
)

// A published version carries counters over as it says, whichever node decides: one that has the
// version, or one that still has the version before.
func TestPublishedCarryOver(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	for i, tt := range []struct {
		carry                   enforcement.CarryOver
		windowLeaves, bucketHas int64
	}{
		{enforcement.CarryKeep, 14, 4},
		{enforcement.CarryReset, 20, 20},
		{enforcement.CarryProportional, 8, 8},
		{enforcement.CarryAdditive, 14, 14},
	} {
		slug := "plan-" + strconv.Itoa(i)
		limits := func(quota int64, carry enforcement.CarryOver) []enforcement.Limit {
			return []enforcement.Limit{
				{Name: "window", Algorithm: enforcement.FixedWindow, Quota: quota, Window: 24 * time.Hour, CarryOver: carry},
				{Name: "bucket", Algorithm: enforcement.TokenBucket, Quota: quota, Window: 24 * time.Hour, CarryOver: carry},
			}
		}
		c.publishLimits(t, slug, limits(10, enforcement.CarryKeep)...)
		c.tenant(t, slug, slug)
		e := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
		decide := func(s *snapshot.Snapshot, cost int64) *enforcement.Decision {
			t.Helper()
			subject, ok := s.Subject(slug)
			if !ok {
				t.Fatalf("no %s; problems %v", slug, s.Problems())
			}
			d := new(enforcement.Decision)
			e.Decide(t.Context(), subject, &enforcement.Check{Cost: cost, Attributes: []enforcement.Attribute{{Name: "user", Value: "u"}}}, d)
			if len(d.Limits) != 2 {
				t.Fatalf("%s: %+v", tt.carry, d)
			}
			return d
		}
		before := c.current(t)
		decide(before, 6)
		c.publishLimits(t, slug, limits(20, tt.carry)...)
		after := c.current(t)
		decide(before, 0)
		charged := int64(0)
		for _, node := range []*snapshot.Snapshot{after, before, after, before, after} {
			d := decide(node, 1)
			if d.Allowed {
				charged++
			}
			if want := []int64{tt.windowLeaves - charged, tt.bucketHas - charged}; node == after &&
				(d.Limits[0].Remaining != want[0] || d.Limits[1].Remaining != want[1]) {
				t.Errorf("%s: %d and %d left after %d units, want %v", tt.carry, d.Limits[0].Remaining, d.Limits[1].Remaining, charged, want)
			}
		}
	}
}
