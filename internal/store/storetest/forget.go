package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// forgetTests are those of what takes tenants out of the counts.
var forgetTests = []struct {
	name string
	run  func(*suite)
}{
	{"what is forgotten is gone, and nothing else", testForget},
	{"a roll-up during a forgetting begins anew", testForgetMeanwhile},
	{"a forgetting that cannot be done is repeated", testForgetFailed},
	{"settings and leases are given up", testGiveUp},
}

// without takes the texts of others out of what joined makes.
func without(_ string, doc []byte, _ []uint32, theirs [][]byte) ([]byte, error) {
	var all []string
	if err := json.Unmarshal(doc, &all); err != nil {
		return nil, err
	}
	for _, other := range theirs {
		var gone []string
		if err := json.Unmarshal(other, &gone); err != nil {
			return nil, err
		}
		for _, text := range gone {
			if at := slices.Index(all, text); at >= 0 {
				all = slices.Delete(all, at, at+1)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// counted is everything that is kept of tenants 0, 1, 2 and 3.
func (s *suite) counted() map[string]any {
	all := map[string]any{"refusals": s.refusalsLeft()}
	for _, step := range []metrics.Step{metrics.Minute, metrics.Hour, metrics.Day} {
		for tenant := range uint32(4) {
			for _, kind := range []metrics.Kind{metrics.KindTotal, metrics.KindRoute, metrics.KindPolicy} {
				all[fmt.Sprintln("counts", step, tenant, kind)] = s.counts(step, tenant, kind)
			}
			for _, name := range metrics.SketchNames {
				all[fmt.Sprintln("sketches", step, tenant, name)] = s.sketches(step, tenant, name)
			}
		}
	}
	return all
}

func (s *suite) refusalsLeft() (left []byte) {
	for n := range byte(20) {
		_, err := s.Store.Refusal(s.ctx, [16]byte{15: n}, 0)
		switch {
		case err == nil:
			left = append(left, n)
		case !problem.Is(err, problem.NotFound):
			s.must(err)
		}
	}
	return left
}

// crowd adds what some tenants did, from a day before on, as a node counts it:
// for each and for all together.
func (s *suite) crowd(node string, word string, tenants ...uint32) {
	s.Helper()
	var b metrics.Batch
	for i, at := range []int64{noon - aDay, noon - 3*anHour, noon - 3*anHour + aMinute, noon, noon + aMinute} {
		if word == "theirs" && i == 1 {
			continue // there they are not
		}
		if word == "ours" && i == 3 {
			continue
		}
		b = metrics.Batch{Node: node, Seq: int64(i + 1)}
		var docs [][]byte
		for _, tenant := range tenants {
			n := int64(tenant) * 7
			doc := fmt.Sprintf(`["%s %d %d"]`, word, tenant, i)
			docs = append(docs, []byte(doc))
			b.Sketches = append(b.Sketches, sketch(at, tenant, node, doc))
			for _, of := range []uint32{tenant, 0} {
				b.Counts = append(b.Counts, count(at, of, n), countOf(metrics.KindRoute, "/"+word, count(at, of, n)), countOf(metrics.KindPolicy, "both", count(at, of, n)))
			}
			b.Refusals = append(b.Refusals, refusal(byte(int(tenant)*5+i), tenant, time.Unix(at, 0)))
		}
		all, err := joined("", docs)
		s.must(err)
		b.Sketches = append(b.Sketches, sketch(at, 0, node, string(all)))
		latency := sketch(at, 0, node, `["time"]`)
		latency.Name = metrics.SketchLatency
		b.Sketches = append(b.Sketches, latency)
		s.must(s.Store.AddCounts(s.ctx, b))
	}
}

func testForget(s *suite) {
	s.crowd("a", "ours", 3)
	s.rollUp(noon + 30*aMinute)
	want := s.counted()
	notes := s.due(noon + 2*aDay)
	s.crowd("x-1", "theirs", 1, 2)
	s.rollUp(noon + 30*aMinute)
	// One hour is due again, with rows of theirs in it.
	s.add("x-2", 1, count(noon-3*anHour, 1, 5), count(noon-3*anHour, 0, 5))

	got, err := s.Other.ForgetCounts(s.ctx, []uint32{1, 2}, "x-", without)
	s.must(err)
	s.rollUp(noon + 30*aMinute)
	left := s.counted()
	// Of an hour in which others were counted, the limiter's time is not told apart.
	for _, step := range []metrics.Step{metrics.Hour, metrics.Day} {
		key := fmt.Sprintln("sketches", step, 0, metrics.SketchLatency)
		delete(left, key)
		delete(want, key)
	}
	s.same("what is left", left, want)
	s.same("what is due", s.due(noon+2*aDay), notes)
	if got.Counts < 4*2*3+1 || got.Sketches < 4*2 || got.Refusals != 8 {
		s.Errorf("forgotten: %+v", got)
	}
	again, err := s.Store.ForgetCounts(s.ctx, []uint32{1, 2}, "x-", without)
	s.must(err)
	s.same("forgotten again", again, metrics.Forgotten{})
	s.same("what is left then", s.refusalsLeft(), want["refusals"])
	// A batch that was sent before its node was forgotten may come again; what is
	// of a node that is not, may not.
	s.add("a", 1, count(noon, 3, 1_000))
	s.same("a batch that came before", s.counts(metrics.Minute, 3, metrics.KindTotal), want[fmt.Sprintln("counts", metrics.Minute, 3, metrics.KindTotal)])
	_, err = s.Store.ForgetCounts(s.ctx, []uint32{3}, "", without)
	s.must(err)
	for key, rows := range s.counted() {
		if text := fmt.Sprint(rows); text != "[]" && text != "[18]" {
			s.Errorf("after everybody is forgotten, %s has %s", key, text)
		}
	}
}

// A roll-up that has read what is forgotten meanwhile writes nothing of it.
func testForgetMeanwhile(s *suite) {
	s.crowd("a", "ours", 3)
	s.crowd("x-1", "theirs", 1)
	once := false
	merge := func(name string, docs [][]byte) ([]byte, error) {
		if !once {
			once = true
			if _, err := s.Other.ForgetCounts(s.ctx, []uint32{1}, "x-", without); err != nil {
				return nil, err
			}
		}
		return joined(name, docs)
	}
	for range 2 {
		for _, r := range s.due(noon + 2*aDay) {
			s.must(s.Store.RollUp(s.ctx, r, merge))
		}
	}
	for _, step := range []metrics.Step{metrics.Minute, metrics.Hour, metrics.Day} {
		s.same("counts of the one", s.counts(step, 1, metrics.KindTotal), noCounts)
		s.same("sketches of the one", s.sketches(step, 1, metrics.SketchLimitedKeys), noSketches)
		other := s.counts(step, 3, metrics.KindTotal)
		for i := range other {
			other[i].Tenant = 0
		}
		s.same("all together", s.counts(step, 0, metrics.KindTotal), other)
	}
}

func testForgetFailed(s *suite) {
	s.crowd("a", "ours", 3)
	want := s.counted()
	s.crowd("x-1", "theirs", 1)
	failing := func(string, []byte, []uint32, [][]byte) ([]byte, error) { return nil, fmt.Errorf("unreadable") }
	if _, err := s.Store.ForgetCounts(s.ctx, []uint32{1}, "x-", failing); err == nil {
		s.Error("a sketch that cannot be read is no error")
	}
	_, err := s.Store.ForgetCounts(s.ctx, []uint32{1}, "x-", without)
	s.must(err)
	s.same("what is left", s.counted(), want)
}

func testGiveUp(s *suite) {
	s.must(s.Store.PutSetting(s.ctx, "a", "1", entry("setting.put")))
	s.must(s.Store.PutSetting(s.ctx, "b", "2", entry("setting.put")))
	before := s.revision()
	s.must(s.Other.DeleteSetting(s.ctx, "a", entry("setting.delete")))
	if after := s.revision(); after != before+1 {
		s.Errorf("the revision is %d after %d", after, before)
	}
	s.must(s.Store.DeleteSetting(s.ctx, "a", entry("setting.delete")))
	if after := s.revision(); after != before+1 {
		s.Errorf("a setting that is not there raises the revision to %d", after)
	}
	for name, want := range map[string]string{"a": "", "b": "2"} {
		if got, err := s.Store.Setting(s.ctx, name); err != nil || got != want {
			s.Errorf("setting %s is %q, error %v; want %q", name, got, err, want)
		}
	}
	lines, err := s.Store.AuditEntries(s.ctx, audit.Filter{Action: "setting.delete"})
	s.must(err)
	if len(lines) != 1 || lines[0].Object != "a" {
		s.Errorf("lines: %+v", lines)
	}

	take := func(holder string, want bool) {
		s.Helper()
		if got, err := s.Store.TakeLease(s.ctx, "l", holder, time.Minute); err != nil || got != want {
			s.Errorf("%s takes the lease: %t, error %v", holder, got, err)
		}
	}
	take("a", true)
	s.must(s.Other.DropLease(s.ctx, "l", "b"))
	take("b", false)
	s.must(s.Other.DropLease(s.ctx, "l", "a"))
	take("b", true)
}
