package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

// Counts are divided by tenant, policy and route: the groups with the most requests and those with the most denials, exact at
// each point, before and after the rows of minutes are rolled up.
func TestGroups(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	count := func(requests, limited int64) metrics.Counts {
		return metrics.Counts{Requests: requests, OK: requests - limited, OverLimit: limited}
	}
	numbers := []metrics.Counts{count(100, 1), count(90, 0), count(80, 0), count(7, 7)} // of 1 to 4
	for _, at := range []time.Time{k.now.Add(-20 * time.Hour), k.now.Add(-3 * time.Minute), k.now} {
		var rows []metrics.CountRow
		busy, limited := map[uint32]int64{}, map[uint32]int64{}
		add := func(tenant uint32, kind metrics.Kind, name string, c metrics.Counts) {
			rows = append(rows, metrics.CountRow{CountKey: metrics.CountKey{At: at.Truncate(time.Minute).Unix(), Tenant: tenant, Kind: kind, Name: name}, Counts: c})
		}
		var sum metrics.Counts
		for i, c := range numbers {
			sum.Add(&c)
			tenant := uint32(i + 1)
			add(tenant, metrics.KindTotal, "", c)
			busy[tenant] = c.Requests
			if c.Limited() > 0 {
				limited[tenant] = c.Limited()
			}
			add(0, metrics.KindRoute, fmt.Sprint("/r", i+1), c)
			add(0, metrics.KindPolicy, fmt.Sprint("p", i+1), c)
		}
		add(0, metrics.KindPolicy, "all", sum) // applies to all requests
		add(0, metrics.KindTotal, "", sum)
		k.add(rows, sketchRow(at, 0, metrics.SketchBusyTenants, "n", metrics.TenantsDoc(busy)), sketchRow(at, 0, metrics.SketchLimitedTenants, "n", metrics.TenantsDoc(limited)))
		k.rollUp()
	}
	for _, test := range []struct {
		by    metrics.Grouping
		back  time.Duration
		want  string
		total int64
	}{
		{metrics.ByTenant, 15 * time.Minute, "1 100+100/1+1, 2 90+90/0+0, 4 7+7/7+7", 554},
		{metrics.ByRouteName, 15 * time.Minute, "/r1 100+100/1+1, /r2 90+90/0+0, /r4 7+7/7+7", 554},
		{metrics.ByPolicy, 15 * time.Minute, "all 277+277/8+8, p1 100+100/1+1, p4 7+7/7+7", 1108},
		{metrics.ByTenant, 24 * time.Hour, "1 100+100+100/1+1+1, 2 90+90+90/0+0+0, 4 7+7+7/7+7+7", 831},
		{metrics.ByPolicy, 5 * 24 * time.Hour, "all 277+554/8+16, p1 100+200/1+2, p4 7+14/7+14", 1662},
	} {
		q := k.back(test.back)
		q.Limit = 2
		g, err := k.Groups(t.Context(), q, test.by)
		k.must(err)
		var got []string
		for _, group := range g.Groups {
			var requests, denied []string
			for _, p := range group.Points {
				if p.Requests > 0 {
					requests, denied = append(requests, fmt.Sprint(p.Requests)), append(denied, fmt.Sprint(p.Limited()))
				}
			}
			name := group.Name
			if test.by == metrics.ByTenant {
				name = fmt.Sprint(group.Tenant)
			}
			got = append(got, name+" "+strings.Join(requests, "+")+"/"+strings.Join(denied, "+"))
		}
		if strings.Join(got, ", ") != test.want || g.Total.Total.Requests != test.total {
			t.Errorf("by %s, %s: %q, in all %d; want %q, %d", test.by, test.back, got, g.Total.Total.Requests, test.want, test.total)
		}
	}
	for _, q := range []metrics.Query{{Tenant: 1}, {Policy: "p1"}, {Route: "/r1"}} {
		q.From, q.To = k.now.Add(-time.Hour), k.now
		if _, err := k.Groups(t.Context(), q, metrics.ByTenant); err == nil {
			t.Errorf("%+v is divided by tenant", q)
		}
	}
	if _, err := k.Groups(t.Context(), k.back(time.Hour), "color"); err == nil {
		t.Error("counts are divided by color")
	}
}
