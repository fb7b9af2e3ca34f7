package preview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// BenchmarkPreview holds a draft with a policy of each kind against a day of a
// thousand tenants: the 40 busiest ask every minute and have 40 users each, the
// others ask every sixtieth.
func BenchmarkPreview(b *testing.B) {
	w := newWorld(b, nil)
	perUser := plans.Policy{Slug: "per-user", CountBy: []string{"user"}, Limits: []enforcement.Limit{limit("60/1m sliding_window_counter")}}
	whole := plans.Policy{Slug: "whole", Match: plans.Match{Path: "/a/*"}, Limits: []enforcement.Limit{limit("600/1m gcra 900")}}
	trial := plans.Policy{Slug: "trial", Mode: enforcement.PolicyShadow, Limits: []enforcement.Limit{limit("9000/1h gcra")}}
	d := plans.Content{Name: "p", Policies: []plans.Policy{perUser, whole, trial}}
	w.publish(b, "p", d)
	busy := make([]uint32, 1000)
	for i := range busy {
		busy[i] = w.tenant(b, fmt.Sprintf("t%d", i), "p", tenants.Allow).Number
	}
	fill(b, w, busy)
	d.Policies[0].Limits = []enforcement.Limit{limit("30/1m sliding_window_counter")}
	d.Policies[1].Limits = []enforcement.Limit{limit("500/1m gcra 700")}
	w.draft(b, "p", d)
	w.set(noon.Add(24*time.Hour + 30*time.Minute))
	b.ReportAllocs()
	for b.Loop() {
		got, err := w.preview.Draft(b.Context(), "p", time.Time{}, time.Time{})
		if err != nil || len(got.Policies) != 3 || got.Active != 1000 {
			b.Fatal(got, err)
		}
	}
}

// fill writes a day of minutes and rolls them up.
func fill(b *testing.B, w *world, busy []uint32) {
	b.Helper()
	seq := int64(0)
	for minute := range 24 * 60 {
		at := noon.Add(time.Duration(minute) * time.Minute).Unix()
		seq++
		batch := metrics.Batch{Node: "n1", Seq: seq}
		for i, tenant := range busy {
			if i >= 40 && (i+minute)%60 != 0 {
				continue
			}
			n := int64(400 - min(i, 390))
			c := metrics.Counts{Requests: n, OK: n - n/20, OverLimit: n / 20, Cost: n - n/20}
			row := func(kind metrics.Kind, name string) {
				batch.Counts = append(batch.Counts, metrics.CountRow{
					CountKey: metrics.CountKey{At: at, Tenant: tenant, Kind: kind, Name: name}, Counts: c,
				})
			}
			row(metrics.KindTotal, "")
			row(metrics.KindRoute, "/a/*")
			row(metrics.KindPolicy, "per-user")
			row(metrics.KindPolicy, "whole")
			row(metrics.KindPolicy, "trial")
			if i < 10 {
				for _, name := range []string{metrics.SketchAllowedKeys, metrics.SketchLimitedKeys} {
					batch.Sketches = append(batch.Sketches, metrics.SketchRow{
						SketchKey: metrics.SketchKey{At: at, Tenant: tenant, Name: name, Node: "n1"}, Doc: ranking(tenant, name, minute, c),
					})
				}
			}
		}
		if err := w.store.AddCounts(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	roller := metrics.NewRoller(w.store, metrics.RollerConfig{Now: func() time.Time { return noon.Add(24*time.Hour + 30*time.Minute) }})
	if err := roller.Turn(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// ranking is a document of 40 users.
func ranking(tenant uint32, name string, minute int, c metrics.Counts) []byte {
	n := c.OK
	if name == metrics.SketchLimitedKeys {
		n = c.OverLimit
	}
	var keys strings.Builder
	left := n
	for k := range 40 {
		count := max(1, left/8)
		if k == 39 || count > left {
			count = left
		}
		if count == 0 {
			break
		}
		left -= count
		if k > 0 {
			keys.WriteByte(',')
		}
		fmt.Fprintf(&keys, `{"t":%d,"p":0,"v":["user-%d"],"c":%d}`, tenant, (k*7+minute/30)%60, count)
	}
	return fmt.Appendf(nil, `{"capacity":100,"total":%d,"policies":[{"policy":"per-user","count_by":["user"]}],"keys":[%s]}`, n-left, keys.String())
}
