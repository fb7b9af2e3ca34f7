package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

func testRollUp(s *suite) {
	var rows []metrics.CountRow
	day := midday - midday%aDay
	for hour := range int64(3) {
		for minute := range int64(60) {
			at := day + hour*anHour + minute*aMinute
			rows = append(rows, count(at, 1, 10), count(at, 2, 1), countOf(metrics.KindRoute, "/a", count(at, 1, 4)), countOf(metrics.KindRoute,
				"/b", count(at, 1, 6)))
		}
	}
	s.add("a", 1, rows...)
	s.same("before an hour is over", s.due(day+anHour-1), noneDue)
	s.same("after an hour", s.due(day+anHour), []metrics.RollUp{{Step: metrics.Hour, At: day}})
	s.rollUp(day + 2*anHour)
	hour := func(at int64, tenant uint32, n int64) metrics.CountRow {
		var r metrics.CountRow
		for range 60 {
			one := count(at, tenant, n)
			r.CountKey = one.CountKey
			r.Add(&one.Counts)
		}
		return r
	}
	s.same("two hours", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{hour(day, 1, 10), hour(day+anHour, 1, 10)})
	s.same("no day yet", s.counts(metrics.Day, 1, metrics.KindTotal), noCounts)
	s.same("the day is not over", s.due(day+aDay-1), []metrics.RollUp{{Step: metrics.Hour, At: day + 2*anHour}})
	s.same("hours before days", s.due(day+aDay), []metrics.RollUp{{Step: metrics.Hour, At: day + 2*anHour}, {Step: metrics.Day, At: day}})
	for range 2 {
		s.rollUp(day + aDay)
		want := hour(day, 1, 10)
		for range 2 {
			more := hour(day, 1, 10)
			want.Add(&more.Counts)
		}
		s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{want})
		s.same("routes of hours", s.counts(metrics.Hour, 1, metrics.KindRoute)[:2], []metrics.CountRow{
			countOf(metrics.KindRoute, "/a", hour(day, 1, 4)), countOf(metrics.KindRoute, "/b", hour(day, 1, 6)),
		})
		s.same("another tenant's hours", s.counts(metrics.Hour, 2, metrics.KindTotal)[:1], []metrics.CountRow{hour(day, 2, 1)})
		// The second roll-up writes all rows again from the same rows of minutes.
		for _, step := range []string{"hour", "day"} {
			s.must(s.Exec(`INSERT INTO roll_ups_due (step, at, n) VALUES ('`+step+`', $1, 1)`, day))
		}
	}
	s.rollUp(day + aDay)
	s.same("due in the end", s.due(day+10*aDay), noneDue)
}

func testRollUpLate(s *suite) {
	day := midday - midday%aDay
	s.add("a", 1, count(day, 1, 10))
	s.rollUp(day + 2*aDay)
	s.add("b", 1, count(day, 1, 100), count(day+5*anHour, 1, 1000)) // this node could not reach the database before
	s.same("due again", s.due(day+2*aDay), []metrics.RollUp{{Step: metrics.Hour, At: day}, {Step: metrics.Hour, At: day + 5*anHour}})
	s.rollUp(day + 2*aDay)
	want := count(day, 1, 110)
	s.same("hours", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{want, count(day+5*anHour, 1, 1000)})
	s.same("days", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 1110)})
}

// There are more tenants than one transaction adds up. All of them get rows of every kind, without
// the counts of another hour.
func testRollUpManyTenants(s *suite) {
	day := midday - midday%aDay
	var rows []metrics.CountRow
	for tenant := range uint32(130) {
		r := count(day+anHour-aMinute, tenant, 10+int64(tenant))
		rows = append(rows, r, count(day, tenant, 100), count(day+anHour, tenant, 1000),
			countOf(metrics.KindRoute, "/a", r), countOf(metrics.KindPolicy, "p", r))
	}
	s.add("a", 1, rows...)
	s.rollUp(day + 2*aDay)
	for tenant := range uint32(130) {
		n := 10 + int64(tenant)
		of := func(kind metrics.Kind) []metrics.CountRow { return s.counts(metrics.Hour, tenant, kind) }
		s.same("hours", of(metrics.KindTotal), []metrics.CountRow{count(day, tenant, n+100), count(day+anHour, tenant, 1000)})
		s.same("hours of a route", of(metrics.KindRoute), []metrics.CountRow{countOf(metrics.KindRoute, "/a", count(day, tenant, n))})
		s.same("hours of a policy", of(metrics.KindPolicy), []metrics.CountRow{countOf(metrics.KindPolicy, "p", count(day, tenant, n))})
		s.same("days", s.counts(metrics.Day, tenant, metrics.KindTotal), []metrics.CountRow{count(day, tenant, n+1100)})
	}
}

// A count that is added after a roll-up has started is in the new rows, or the roll-up is due
// again.
func testRollUpMeanwhile(s *suite) {
	r := metrics.RollUp{Step: metrics.Hour, At: midday}
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(midday, 1, 10)}, Sketches: []metrics.SketchRow{sketch(midday, 1, "a", `["x"]`)},
	}))
	s.must(s.Store.RollUp(s.ctx, r, func(name string, docs [][]byte) ([]byte, error) {
		b := metrics.Batch{
			Node: "b", Seq: 1, Counts: []metrics.CountRow{count(midday, 1, 100)}, Sketches: []metrics.SketchRow{sketch(midday, 1, "b", `["y"]`)},
		}
		if err := s.Other.AddCounts(s.ctx, b); err != nil {
			return nil, err
		}
		return joined(name, docs)
	}))
	s.same("due", s.due(midday+anHour), []metrics.RollUp{r})
	s.rollUp(midday + anHour)
	s.same("counts", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(midday, 1, 110)})
	s.same("sketches", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(midday, 1, "", `["x","y"]`)})
	// A roll-up that is not due changes nothing.
	s.must(s.Exec(`UPDATE counts_hours SET requests = 1`))
	s.must(s.Store.RollUp(s.ctx, r, joined))
	if rows := s.counts(metrics.Hour, 1, metrics.KindTotal); len(rows) != 1 || rows[0].Requests != 1 {
		s.Errorf("an hour that was not due was written: %+v", rows)
	}
}

// If another roll-up has finished first, a roll-up does not delete the record of a batch that was
// added after that.
func testRollUpOvertaken(s *suite) {
	r := metrics.RollUp{Step: metrics.Hour, At: midday}
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(midday, 1, 10)}, Sketches: []metrics.SketchRow{sketch(midday, 1, "a", `["x"]`)},
	}))
	s.must(s.Store.RollUp(s.ctx, r, func(name string, docs [][]byte) ([]byte, error) {
		merged, err := joined(name, docs)
		if err == nil {
			err = s.Other.RollUp(s.ctx, r, joined)
		}
		if err == nil {
			err = s.Other.AddCounts(s.ctx, metrics.Batch{
				Node: "b", Seq: 1, Counts: []metrics.CountRow{count(midday, 1, 100)}, Sketches: []metrics.SketchRow{sketch(midday, 1, "b", `["y"]`)},
			})
		}
		return merged, err
	}))
	s.same("due", s.due(midday+anHour), []metrics.RollUp{r})
	s.rollUp(midday + anHour)
	s.same("counts", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(midday, 1, 110)})
	s.same("sketches", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(midday, 1, "", `["x","y"]`)})
}

// Two nodes add counts, two roll up, and one prunes, all at the same time. At the end, each step
// has every request.
func testRollUpConcurrent(s *suite) {
	const batches = 60
	day := midday - midday%aDay
	now := day + 3*aDay
	var adding, others sync.WaitGroup
	done := make(chan struct{})
	until := func(turn func(at Store) error, at Store) {
		others.Go(func() {
			for {
				if err := turn(at); err != nil {
					s.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for node, at := range []Store{s.Store, s.Other} {
		adding.Go(func() {
			for i := range int64(batches) {
				b := metrics.Batch{Node: fmt.Sprint(node), Seq: i + 1}
				for tenant := range uint32(3) {
					b.Counts = append(b.Counts, count(day+i%4*anHour, tenant, 10), count(day+aDay+i%4*anHour, tenant, 10))
				}
				if err := at.AddCounts(s.ctx, b); err != nil {
					s.Error(err)
				}
			}
		})
		until(func(at Store) error {
			list, err := at.RollUpsDue(s.ctx, time.Unix(now, 0), 3)
			for _, r := range list {
				err = errors.Join(err, at.RollUp(s.ctx, r, joined))
			}
			return err
		}, at)
	}
	until(func(at Store) error {
		_, err := at.Prune(s.ctx, metrics.Retention{Minutes: day + aDay, Hours: day + aDay})
		return err
	}, s.Other)
	adding.Wait()
	close(done)
	others.Wait()
	s.rollUp(now)
	for tenant := range uint32(3) {
		var all int64
		for _, r := range s.counts(metrics.Day, tenant, metrics.KindTotal) {
			all += r.Requests
		}
		if want := int64(2 * batches * 2 * 10); all != want {
			s.Errorf("tenant %d: days have %d requests, want %d", tenant, all, want)
		}
	}
}

func testRollUpFailed(s *suite) {
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(midday, 1, 10)}, Sketches: []metrics.SketchRow{sketch(midday, 1, "a", `["x"]`)},
	}))
	r := metrics.RollUp{Step: metrics.Hour, At: midday}
	err := s.Store.RollUp(s.ctx, r, func(string, [][]byte) ([]byte, error) { return nil, errors.New("no sketch") })
	if err == nil || !strings.Contains(err.Error(), "no sketch") {
		s.Errorf("error %v, want the merge's", err)
	}
	s.same("counts", s.counts(metrics.Hour, 1, metrics.KindTotal), noCounts)
	s.same("due", s.due(midday+anHour), []metrics.RollUp{r})
}
