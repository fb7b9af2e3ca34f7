package storetest

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

func testPruneKeeps(s *suite) {
	day := midday - midday%aDay
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(day, 1, 10), count(day+anHour, 1, 20)},
		Sketches: []metrics.SketchRow{sketch(day, 1, "a", `["x"]`)},
	}))
	all := metrics.Retention{Minutes: day + 9*aDay, Hours: day + 9*aDay, Days: day}
	s.prune(all)
	s.same("minutes before they are rolled up", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{
		count(day, 1, 10),
		count(day+anHour, 1, 20),
	})
	s.must(s.Store.RollUp(s.ctx, metrics.RollUp{Step: metrics.Hour, At: day}, joined))
	s.prune(all)
	s.same("minutes of the hour that is not", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(day+anHour, 1, 20)})
	s.same("hours before they are rolled up", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 10)})
	s.rollUp(day + aDay)
	// Minutes are deleted because of their age; hours and days stay.
	s.prune(metrics.Retention{Minutes: day + anHour + 1, Hours: day, Days: day})
	s.same("minutes of an hour that is not old enough", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(day+anHour,
		1, 20)})
	s.prune(all)
	s.same("minutes", s.counts(metrics.Minute, 1, metrics.KindTotal), noCounts)
	s.same("hours", s.counts(metrics.Hour, 1, metrics.KindTotal), noCounts)
	s.same("sketches of hours", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), noSketches)
	s.same("days", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 30)})
	s.same("sketches of days", s.sketches(metrics.Day, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(day, 1, "", `["x"]`)})
	s.prune(metrics.Retention{Days: day + aDay})
	s.same("days that are old", s.counts(metrics.Day, 1, metrics.KindTotal), noCounts)
}

// If the minutes of an hour are deleted, the hour is not computed again from minutes that are added
// later. The same holds for a day.
func testPruneLate(s *suite) {
	day := midday - midday%aDay
	s.add("a", 1, count(day, 1, 10), count(day+aMinute, 1, 20))
	s.rollUp(day + 2*aDay)
	s.prune(metrics.Retention{Minutes: day + aDay})
	late := metrics.Batch{
		Node: "b", Seq: 1, Counts: []metrics.CountRow{count(day, 1, 100), count(day+aMinute, 1, 200)},
		Sketches: []metrics.SketchRow{sketch(day, 1, "b", `["late"]`)},
	}
	for range 2 {
		s.must(s.Store.AddCounts(s.ctx, late))
		s.same("the day is due, the hour is not", s.due(day+2*aDay), []metrics.RollUp{{Step: metrics.Day, At: day}})
	}
	s.rollUp(day + 2*aDay)
	s.same("minutes", s.counts(metrics.Minute, 1, metrics.KindTotal), noCounts)
	s.same("the hour", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 330)})
	s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 330)})
	s.same("sketches that came too late", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), noSketches)
	s.prune(metrics.Retention{Minutes: day + aDay, Hours: day + aDay})
	s.add("b", 2, count(day+3*anHour, 1, 1000))
	s.rollUp(day + 2*aDay)
	s.same("no hour", s.counts(metrics.Hour, 1, metrics.KindTotal), noCounts)
	s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 1330)})
	// A roll-up that should not be due is ended without a loss of counts.
	s.must(s.Exec(`INSERT INTO roll_ups_due (step, at, n) VALUES ('hour', $1, 1), ('day', $1, 1)`, day))
	s.rollUp(day + 2*aDay)
	s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 1330)})
}

func testPrunePieces(s *suite) {
	const rows = 4500
	batch := make([]metrics.CountRow, rows)
	for i := range batch {
		batch[i] = countOf(metrics.KindRoute, fmt.Sprintf("/%04d", i), count(midday, 1, 10))
	}
	s.add("a", 1, batch...)
	s.rollUp(midday + anHour)
	calls := 0
	for more := true; more; calls++ {
		var err error
		more, err = s.Store.Prune(s.ctx, metrics.Retention{Minutes: midday + anHour})
		s.must(err)
		if calls == 0 {
			// An hour of which some minutes are deleted is not computed again.
			s.add("b", 1, countOf(metrics.KindRoute, "/0000", count(midday, 1, 10)))
			s.rollUp(midday + anHour)
		}
	}
	if calls < 3 {
		s.Errorf("%d rows went in %d calls", rows, calls)
	}
	s.same("minutes", s.counts(metrics.Minute, 1, metrics.KindRoute), noCounts)
	hours := s.counts(metrics.Hour, 1, metrics.KindRoute)
	if len(hours) != rows {
		s.Fatalf("%d rows of the hour, want %d", len(hours), rows)
	}
	s.same("the hour", hours[:2], []metrics.CountRow{
		countOf(metrics.KindRoute, "/0000", count(midday, 1, 20)), countOf(metrics.KindRoute, "/0001", count(midday, 1, 10)),
	})
}

func testPruneOthers(s *suite) {
	now := s.Clock.Now()
	b := metrics.Batch{Node: "a", Seq: 5, Counts: []metrics.CountRow{count(midday, 1, 10)}}
	for n := range byte(10) { // the first is the oldest
		b.Refusals = append(b.Refusals, refusal(n+1, 7, now.Add(time.Duration(n)*time.Minute)))
	}
	s.must(s.Store.AddCounts(s.ctx, b))
	left := func(what string, want ...byte) {
		s.Helper()
		var have []byte
		for n := range byte(10) {
			if _, err := s.Store.Refusal(s.ctx, [16]byte{15: n + 1}, 0); err == nil {
				have = append(have, n+1)
			}
		}
		s.same(what, have, want)
	}
	s.prune(metrics.Retention{Refusals: now.Unix(), MaxRefusals: 10})
	left("none too many", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	s.prune(metrics.Retention{Refusals: now.Add(3*time.Minute).Unix() + 1})
	left("by age", 5, 6, 7, 8, 9, 10)
	s.prune(metrics.Retention{MaxRefusals: 4})
	left("by number", 7, 8, 9, 10)
	s.prune(metrics.Retention{Nodes: now.Unix()})
	s.must(s.Store.AddCounts(s.ctx, b))
	s.same("the mark is kept", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(midday, 1, 10)})
	s.prune(metrics.Retention{Nodes: now.Unix() + 1})
	s.add("a", 1, count(midday, 1, 1)) // the number of the node's last batch is deleted, so its numbers begin again
	s.same("the mark is gone", s.counts(metrics.Minute, 1, metrics.KindTotal)[0].Requests, int64(11))
}
