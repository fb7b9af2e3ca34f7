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
	{"step", "The length of the step: minute, hour or day. A file of the dashboard has the steps of the charts, such as 10 minutes."},
	{"requests", "The number of decisions to which the policy applied."},
	{"allowed", "How many of them were allowed."},
	{"limited", "How many of them were denied by this policy."},
	{"cost", "The units that were charged."},
	{"time_zone", "The time zone of at."},
}

// Usage returns a file with one row for each policy of a tenant and each step in which the policy
// decided requests. The parameters are:
//
//   - from reads the counts.
//   - slug is the slug of the tenant, for the name of the file.
//   - q has the internal number of the tenant, the time range, and the step. If the step is empty, it is metrics.Hour.
//   - every is the length of the steps of the file, a multiple of the step of q. If it is 0, the file has the step of q.
//   - policies are the slugs of the policies in the tenant's plan. The file also has at most 100 policies that are not
//     in the plan but decided requests in the time range.
func Usage(
	ctx context.Context, from *metrics.Analytics, slug string, q metrics.Query, every time.Duration, policies []string,
	zone *time.Location,
) (File, error) {
	q.Step = cmp.Or(q.Step, metrics.Hour)
	every = cmp.Or(every, q.Step.Duration())
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
			for p, err := range points(ctx, from, q, every) {
				if err != nil {
					yield(nil, err)
					return
				}
				if p.Requests > 0 && !yield(usageFields(q, every, &p, zone), nil) {
					return
				}
			}
		}
	}
	return File{Name: "headgate-" + slug + "-usage", Columns: UsageColumns, Rows: rows}, nil
}

// points yields the counts of a query in steps of the length every, oldest first.
func points(ctx context.Context, from *metrics.Analytics, q metrics.Query, every time.Duration) iter.Seq2[metrics.Point, error] {
	return func(yield func(metrics.Point, error) bool) {
		var sum metrics.Point
		for part := range parts(q) {
			traffic, err := from.Traffic(ctx, part)
			if err != nil {
				yield(sum, err)
				return
			}
			for i := range traffic.Points {
				p := &traffic.Points[i]
				if at := p.At.Truncate(every); !at.Equal(sum.At) {
					if !sum.At.IsZero() && !yield(sum, nil) {
						return
					}
					sum = metrics.Point{At: at}
				}
				sum.Add(&p.Counts)
			}
		}
		if !sum.At.IsZero() {
			yield(sum, nil)
		}
	}
}

// stepsAtOnce is the number of steps for which one query reads counts. metrics.Analytics.Traffic
// accepts this many.
const stepsAtOnce = 1000

// parts splits a query into queries of at most stepsAtOnce whole steps.
func parts(q metrics.Query) iter.Seq[metrics.Query] {
	length := q.Step.Duration()
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

func usageFields(q metrics.Query, every time.Duration, p *metrics.Point, zone *time.Location) []string {
	step := string(q.Step)
	if n := every / q.Step.Duration(); n > 1 {
		step = strconv.FormatInt(int64(n), 10) + " " + step + "s"
	}
	fields := []string{q.Policy, p.At.In(zone).Format(time.RFC3339), step}
	for _, n := range []int64{p.Requests, p.Allowed(), p.Limited(), p.Cost} {
		fields = append(fields, strconv.FormatInt(n, 10))
	}
	return append(fields, zone.String())
}
