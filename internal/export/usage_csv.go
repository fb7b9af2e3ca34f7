package export

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

// UsageColumns are the columns of the file that Usage returns.
var UsageColumns = []Column{
	{"policy", "The slug of the policy."},
	{"at", "The start of the step."},
	{"step", "The length of the step: minute, hour or day."},
	{"requests", "The number of decisions to which the policy applied."},
	{"allowed", "How many of them were allowed."},
	{"limited", "How many of them were denied by this policy."},
	{"cost", "The units that were charged."},
	{"time_zone", "The time zone of at."},
}

// Usage returns a file with one row for each policy of a tenant and each step in which the policy
// decided requests. The other parameters are:
//
//   - from: what reads the counts.
//   - slug: the slug of the tenant, for the name of the file.
//   - q: the internal number of the tenant, the time range, and the step. An empty step means metrics.Hour.
//   - policies: the slugs of the policies in the tenant's plan. The file also has at most 100 policies that are
//     not in the plan but decided requests in the time range.
func Usage(
	ctx context.Context, from *metrics.Analytics, slug string, q metrics.Query, policies []string, zone *time.Location,
) (File, error) {
	q.Step = cmp.Or(q.Step, metrics.Hour)
	ranking, err := from.Policies(ctx, metrics.Query{Tenant: q.Tenant, From: q.From, To: q.To, Limit: 100})
	if err != nil {
		return File{}, err
	}
	for _, p := range ranking.Routes {
		if !slices.Contains(policies, p.Name) {
			policies = append(policies, p.Name)
		}
	}
	rows := func(yield func([]string, error) bool) {
		for _, q.Policy = range policies {
			for part := range parts(q) {
				traffic, err := from.Traffic(ctx, part)
				if err != nil {
					yield(nil, err)
					return
				}
				for i := range traffic.Points {
					p := &traffic.Points[i]
					if p.Requests > 0 && !yield(usageFields(q, p, zone), nil) {
						return
					}
				}
			}
		}
	}
	return File{Name: "headgate-" + slug + "-usage", Columns: UsageColumns, Rows: rows}, nil
}

// stepsAtOnce is the number of steps for which one query reads counts. metrics.Analytics.Traffic
// accepts this many.
const stepsAtOnce = 1000

// parts splits a query into queries of at most stepsAtOnce whole steps.
func parts(q metrics.Query) iter.Seq[metrics.Query] {
	length := map[metrics.Step]time.Duration{metrics.Minute: time.Minute, metrics.Hour: time.Hour, metrics.Day: 24 * time.Hour}[q.Step]
	return func(yield func(metrics.Query) bool) {
		for at := q.From; at.Before(q.To); {
			part, end := q, at.Truncate(length).Add(stepsAtOnce*length)
			part.From = at
			if end.Before(q.To) {
				part.To = end
			}
			if !yield(part) {
				return
			}
			at = end
		}
	}
}

func usageFields(q metrics.Query, p *metrics.Point, zone *time.Location) []string {
	fields := []string{q.Policy, p.At.In(zone).Format(time.RFC3339), string(q.Step)}
	for _, n := range []int64{p.Requests, p.Allowed(), p.Limited(), p.Cost} {
		fields = append(fields, strconv.FormatInt(n, 10))
	}
	return append(fields, zone.String())
}
