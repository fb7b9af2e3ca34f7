package metrics

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/problem"
)

// midnight is the beginning of a day.
var midnight = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).Unix()

const (
	aMinute = 60
	anHour  = 60 * aMinute
	aDay    = 24 * anHour
)

// Every instant of a time range is in one part: in the longest row that is within the
// range, for every state of the roll-ups.
func TestLay(t *testing.T) {
	t.Parallel()
	hour := func(n int64) RollUp { return RollUp{Hour, midnight + n*anHour} }
	today := RollUp{Day, midnight}
	for _, test := range []struct {
		name     string
		step     Step
		whole    bool
		from, to int64 // from midnight
		due      []RollUp
		want     []part // from midnight
	}{
		{"rolled up", Day, true, 0, aDay, nil, []part{{Day, 0, aDay}}},
		{"an open hour", Day, true, 0, aDay, []RollUp{hour(14), today}, []part{{Hour, 0, 14 * anHour}, {Minute, 14 * anHour, 15 * anHour}, {Hour, 15 * anHour, aDay}}},
		{"the first hour of a day", Day, true, -aDay, aDay, []RollUp{hour(0)}, []part{{Day, -aDay, 0}, {Minute, 0, anHour}, {Hour, anHour, aDay}}},
		{"a day of which all hours are rolled up", Day, true, 0, aDay, []RollUp{today}, []part{{Hour, 0, aDay}}},
		{"a late flush in a day that was rolled up", Day, true, -aDay, 2 * aDay, []RollUp{hour(3)}, []part{
			{Day, -aDay, 0},
			{Hour, 0, 3 * anHour},
			{Minute, 3 * anHour, 4 * anHour},
			{Hour, 4 * anHour, aDay},
			{Day, aDay, 2 * aDay},
		}},
		{"hours over and not rolled up", Hour, false, 0, 4 * anHour, []RollUp{hour(1), hour(2), today}, []part{
			{Hour, 0, anHour},
			{Minute, anHour, 3 * anHour},
			{Hour, 3 * anHour, 4 * anHour},
		}},
		{"points of minutes", Minute, false, 30 * aMinute, 2 * anHour, nil, []part{{Minute, 30 * aMinute, 2 * anHour}}},
		{"a sum to the minute", Minute, true, 30 * aMinute, aDay + anHour + aMinute, nil, []part{
			{Minute, 30 * aMinute, anHour},
			{Hour, anHour, aDay + anHour},
			{Minute, aDay + anHour, aDay + anHour + aMinute},
		}},
		{"points of hours", Hour, false, 30 * aMinute, 90 * aMinute, nil, []part{{Hour, 0, 2 * anHour}}},
		{"nothing", Minute, false, 0, 0, nil, nil},
		{"what has not begun", Day, true, 2 * aDay, aDay, nil, nil},
	} {
		b := bounds{rows: maxRows}
		if !test.whole {
			b.points = maxPoints
		}
		r, ok := planReading(midnight+test.from, midnight+test.to, test.step, Kept{}, newHeld(test.due), b)
		if !ok {
			t.Errorf("%s: not allowed", test.name)
		}
		slices.Reverse(r.parts)
		var rows int64
		for i := range r.parts {
			p := &r.parts[i]
			rows += (p.to - p.from) / p.step.seconds()
			p.from, p.to = p.from-midnight, p.to-midnight
		}
		if diff := cmp.Diff(r.parts, test.want, cmp.AllowUnexported(part{})); diff != "" || rows != r.rows {
			t.Errorf("%s: %d rows, told %d (-got +want):\n%s", test.name, rows, r.rows, diff)
		}
	}
}

func TestLayAnyDue(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		var due []RollUp
		for range random.IntN(12) {
			due = append(due, RollUp{Hour, midnight + random.Int64N(5*24)*anHour})
		}
		for range random.IntN(3) {
			due = append(due, RollUp{Day, midnight + random.Int64N(5)*aDay})
		}
		from := midnight + random.Int64N(4*aDay)
		to := from + 1 + random.Int64N(2*aDay)
		b := bounds{rows: maxRows}
		if random.IntN(2) == 0 {
			b.points = 1 << 40
		}
		step := steps[random.IntN(3)]
		r, ok := planReading(from, to, step, Kept{}, newHeld(due), b)
		if !ok {
			t.Fatalf("[%d, %d) by %s is not allowed", from, to, step)
		}
		at := r.To.Unix()
		for _, p := range r.parts { // newest first
			if p.to != at || p.from >= p.to || b.points > 0 && p.step.seconds() > step.seconds() {
				t.Fatalf("part %+v ends not at %d, or is longer than %s", p, at, step)
			}
			at = p.from
			for _, d := range due {
				inside := d.At+d.Step.seconds() > p.from && d.At < p.to
				if inside && (p.step == d.Step || p.step == Day) {
					t.Fatalf("%+v is read from %+v", d, p)
				}
			}
		}
		if at != r.From.Unix() || at > from || from-at >= step.seconds() || r.To.Unix() < to || r.To.Unix()-to >= step.seconds() {
			t.Fatalf("[%d, %d) by %s became %+v", from, to, step, r.Span)
		}
	}
}

// fixed is a store without rows.
type fixed struct {
	Store
	kept Kept
}

func (f fixed) Kept(context.Context, int64, int64) (Kept, error) { return f.kept, nil }

func TestStepChoice(t *testing.T) {
	t.Parallel()
	now := time.Unix(midnight+14*anHour+23*aMinute+37, 5)
	kept := Kept{Minutes: midnight - 2*aDay + 14*anHour, Hours: midnight - 90*aDay, Due: []RollUp{{Hour, midnight + 14*anHour}, {Day, midnight}}}
	a := NewAnalytics(fixed{kept: kept}, AnalyticsConfig{Now: func() time.Time { return now }})
	traffic, rank := bounds{points: maxPoints, rows: maxRows}, bounds{points: 250, rows: 500}
	for _, test := range []struct {
		back   time.Duration
		asked  Step
		b      bounds
		want   Step
		points int
		errors string
	}{
		{15 * time.Minute, "", traffic, Minute, 16, ""},
		{24 * time.Hour, "", traffic, Minute, 1441, ""},
		{24 * time.Hour, Hour, traffic, Hour, 25, ""},
		{24 * time.Hour, Day, traffic, Day, 2, ""},
		{26 * time.Hour, "", traffic, Hour, 27, ""},
		{26 * time.Hour, Minute, traffic, "", 0, "must be hour or day for this time"},
		{7 * 24 * time.Hour, "", traffic, Hour, 169, ""},
		{62 * 24 * time.Hour, "", traffic, Hour, 1489, ""},
		{90 * 24 * time.Hour, "", traffic, Day, 91, ""},
		{90 * 24 * time.Hour, Hour, traffic, "", 0, "must be day for this time"},
		{91 * 24 * time.Hour, Minute, traffic, "", 0, "must be day for this time"},
		{time.Hour, "week", traffic, "", 0, "must be minute or hour or day for this time"},
		{3*366*24*time.Hour - time.Hour, "", traffic, Day, 1099, ""},
		{15 * time.Minute, "", rank, Minute, 16, ""},
		{24 * time.Hour, "", rank, Hour, 25, ""},
		{7 * 24 * time.Hour, "", rank, Hour, 169, ""},
		{90 * 24 * time.Hour, "", rank, Day, 91, ""},
		{24 * time.Hour, "", wholeSketches, Minute, 1441, ""},
		{90 * 24 * time.Hour, "", wholeSketches, Hour, 2161, ""}, // 89 days, and hours at both ends
		{91 * 24 * time.Hour, "", wholeSketches, Day, 92, ""},
		{24 * time.Hour, "", pointSketches, Hour, 25, ""},
	} {
		r, err := a.reading(t.Context(), Query{From: now.Add(-test.back), To: now.Add(time.Hour), Step: test.asked}, test.b)
		if test.errors != "" {
			wantField(t, err, "step", test.errors)
			continue
		}
		if err != nil || r.Step != test.want || r.place(r.To.Unix()) != test.points {
			t.Errorf("%v by %q: by %s %d points, error %v; want by %s %d", test.back, test.asked, r.Step, r.place(r.To.Unix()), err, test.want, test.points)
		}
		if next := floorTo(now.Unix(), r.Step) + r.Step.seconds(); r.To.Unix() != next {
			t.Errorf("%v by %q: ends at %v, want the end of the step that is now", test.back, test.asked, r.To)
		}
	}
	old := Query{From: time.Unix(kept.Minutes-1, 0), To: time.Unix(kept.Minutes+anHour, 0)}
	if r, err := a.reading(t.Context(), old, traffic); err != nil || r.Step != Hour {
		t.Errorf("where minutes were given up: by %s, error %v; want hours", r.Step, err)
	}
	old = Query{From: time.Unix(kept.Hours-1, 0), To: time.Unix(kept.Hours+anHour, 0)}
	if r, err := a.reading(t.Context(), old, traffic); err != nil || r.Step != Day {
		t.Errorf("where hours were given up: by %s, error %v; want days", r.Step, err)
	}
}

// If no roll-up runs, days are computed from shorter rows.
func TestStepChoiceNothingRolledUp(t *testing.T) {
	t.Parallel()
	now := time.Unix(midnight, 0)
	var due []RollUp
	for at := midnight - 10*aDay; at < midnight; at += anHour {
		due = append(due, RollUp{Hour, at})
	}
	a := NewAnalytics(fixed{kept: Kept{Due: due}}, AnalyticsConfig{Now: func() time.Time { return now }})
	r, err := a.reading(t.Context(), Query{From: now.Add(-10 * aDay * time.Second), To: now}, bounds{points: maxPoints, rows: maxRows})
	if err != nil || r.Step != Day || r.rows != 10*24*60 {
		t.Errorf("by %s from %d rows, error %v", r.Step, r.rows, err)
	}
}

func wantField(t *testing.T, err error, pointer, message string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != problem.Invalid || len(p.Fields) != 1 || p.Fields[0] != (problem.Field{Pointer: pointer, Message: message}) {
		t.Errorf("error %v, want Invalid at %s: %s", err, pointer, message)
	}
}

func TestQueriesRefused(t *testing.T) {
	t.Parallel()
	now := time.Unix(midnight, 0)
	a := NewAnalytics(fixed{}, AnalyticsConfig{})
	ask := map[string]func(Query) error{
		"traffic":     func(q Query) error { _, err := a.Traffic(t.Context(), q); return err },
		"policies":    func(q Query) error { _, err := a.Policies(t.Context(), q); return err },
		"routes":      func(q Query) error { _, err := a.Routes(t.Context(), q); return err },
		"tenants":     func(q Query) error { _, err := a.Tenants(t.Context(), q, ByRate); return err },
		"keys":        func(q Query) error { _, err := a.Keys(t.Context(), q, LimitedKeys); return err },
		"key":         func(q Query) error { _, err := a.Key(t.Context(), q, TopKey{}, LimitedKeys); return err },
		"retry-after": func(q Query) error { _, err := a.RetryAfter(t.Context(), q); return err },
		"remaining":   func(q Query) error { _, err := a.Remaining(t.Context(), q); return err },
		"latency":     func(q Query) error { _, err := a.Latency(t.Context(), q); return err },
	}
	for name, asked := range ask {
		t.Run(name, func(t *testing.T) {
			wantField(t, asked(Query{From: now, To: now}), "to", "must be after from")
			wantField(t, asked(Query{From: now, To: now.Add(-1)}), "to", "must be after from")
			wantField(t, asked(Query{From: now, To: now.Add(maxRange + 1)}), "from", "must be at most 3 years before to")
		})
	}
	span := Query{From: now, To: now.Add(time.Hour), Policy: "p", Route: "/r"}
	wantField(t, ask["traffic"](span), "route", "must not be set together with policy")
	for name, pointer := range map[string]string{
		"policies": "route", "routes": "policy", "tenants": "policy", "keys": "route", "retry-after": "policy", "remaining": "route", "latency": "policy",
	} {
		wantField(t, ask[name](span), pointer, "is not supported here")
	}
	_, err := a.Refusals(t.Context(), RefusalFilter{From: now, To: now})
	wantField(t, err, "to", "must be after from")
}

// The bounds of a union of many rows contain the true counts, and are not wider than those
// of merging two at a time.
func TestUnionOfRankings(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 3))
		truth, total := map[string]int64{}, int64(0)
		u, merged := newUnion(), newTopKeys(10)
		for range 1 + random.IntN(12) {
			one := newTopKeys(10)
			for range random.IntN(300) {
				n, user := 1+random.Int64N(3), fmt.Sprint("u", int(random.ExpFloat64()*6))
				total += n
				truth[user] += n
				text := topText{tenant: 1, policy: "p", names: []string{"user"}, values: []topValue{{text: user}}}
				if e := one.add(text.id(), n); e != nil {
					e.text = text
				}
			}
			doc := one.encode()
			read, err := decodeTopKeys(doc)
			if err != nil {
				t.Fatal(err)
			}
			list, err := decodeTopList(SketchLimitedKeys, doc)
			if err != nil {
				t.Fatal(err)
			}
			u.add(list)
			merged.merge(read)
		}
		list, floor := u.ranking(nil, 5)
		if u.total != total || u.floor > merged.floor() {
			t.Fatalf("seed %d: total %d, want %d; floor %d, merged %d", seed, u.total, total, u.floor, merged.floor())
		}
		for i := range list {
			k := list[i].key()
			if n := truth[k.Values[0]]; n > k.Count || n < k.Count-k.Error || k.Error < 0 {
				t.Fatalf("seed %d: %s has %d, told %d-%d", seed, k.Values[0], n, k.Count, k.Error)
			}
			if i > 0 && k.Count > list[i-1].count {
				t.Fatalf("seed %d: not in order", seed)
			}
			delete(truth, k.Values[0])
		}
		for user, n := range truth {
			if n > floor {
				t.Fatalf("seed %d: %s has %d and is not there, floor %d", seed, user, n, floor)
			}
		}
	}
}

func TestRemainingShown(t *testing.T) {
	t.Parallel()
	var counts remainingCounts
	for _, remaining := range []int64{0, 1, 50, 51, 1000} {
		counts[remainingBucket(remaining, 1000)]++
	}
	p := remainingShown("p", &counts)
	got := map[string]int64{}
	for _, b := range p.Buckets {
		if b.Count > 0 {
			got[fmt.Sprintf("(%d, %d]", b.From, b.To)] = b.Count
		}
	}
	want := map[string]int64{"(-1, 0]": 1, "(0, 5]": 2, "(5, 10]": 1, "(95, 100]": 1}
	if diff := cmp.Diff(got, want); diff != "" || p.Count != 5 || len(p.Buckets) != 21 {
		t.Errorf("%d of %d buckets (-got +want):\n%s", p.Count, len(p.Buckets), diff)
	}
}

func TestPendingRefusal(t *testing.T) {
	t.Parallel()
	waiting := Refusal{ID: [16]byte{1}, Tenant: 7}
	a := NewAnalytics(noRefusals{}, AnalyticsConfig{Pending: func(id [16]byte) (Refusal, bool) { return waiting, id == waiting.ID }})
	for tenant, found := range map[uint32]bool{0: true, 7: true, 8: false} {
		r, err := a.Refusal(t.Context(), waiting.ID, tenant)
		if found && (err != nil || r.Tenant != 7) || !found && !problem.Is(err, problem.NotFound) {
			t.Errorf("for tenant %d: %+v, error %v", tenant, r, err)
		}
	}
	if _, err := a.Refusal(t.Context(), [16]byte{2}, 0); !problem.Is(err, problem.NotFound) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("error %v, want the store's", err)
	}
}

type noRefusals struct{ Store }

func (noRefusals) Refusal(context.Context, [16]byte, uint32) (Refusal, error) {
	return Refusal{}, problem.New(problem.NotFound, "nowhere")
}

// Cached rows agree with the stored ones, also after these change.
func TestMemory(t *testing.T) {
	t.Parallel()
	var m memory
	for _, n := range []int64{1, 2, 2, 1} {
		r := retryTimes{never: n}
		s, err := remember(&m, Minute, &SketchRow{SketchKey: SketchKey{At: 60, Name: SketchRetryAfter}, Doc: r.encode()}, decodeSketch)
		if err != nil || s.(*retryTimes).never != n {
			t.Errorf("%+v, error %v; want never %d", s, err, n)
		}
	}
	if _, err := remember(&m, Minute, &SketchRow{SketchKey: SketchKey{Name: SketchRetryAfter}, Doc: []byte(`{`)}, decodeSketch); err == nil {
		t.Error("a broken document was read")
	}
	if len(m.sketches) != 1 {
		t.Errorf("%d are remembered, want 1", len(m.sketches))
	}
}

// The cache needs at most the bytes that it reports, and at most its bound. The test is not
// parallel, so that nothing else is on the heap.
func TestMemoryIsBounded(t *testing.T) {
	var docs [][]byte
	names := []string{SketchLimitedKeys, SketchRetryAfter, SketchRemaining, SketchLatency}
	for seed := range uint64(4) {
		retry, latency, remaining := &retryTimes{}, &latencies{}, remainingShares{}
		for i := range int64(400) {
			retry.histogram.add(i*i*i, 1+i)
			latency.shared.add(i*i, 1)
			latency.local.add(i, 1)
			remaining.add(fmt.Sprint("policy-", i%8), &remainingCounts{})
		}
		docs = append(docs, stream(5_000, 400, seed).encode(), retry.encode(), remaining.encode(), latency.encode())
	}
	m := memory{most: 8 << 20}
	heap := func() int {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc)
	}
	before := heap()
	for at := range int64(4_000) {
		name, doc := names[at%4], docs[at%16]
		row := &SketchRow{SketchKey: SketchKey{At: at, Name: name}, Doc: doc}
		var err error
		if name == SketchLimitedKeys {
			_, err = remember(&m, Minute, row, decodeTopList)
		} else {
			_, err = remember(&m, Minute, row, decodeSketch)
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.size > m.most {
			t.Fatalf("%d bytes are remembered, more than %d", m.size, m.most)
		}
	}
	if m.size < m.most*9/10 || len(m.sketches) >= 4_000 {
		t.Errorf("%d bytes of %d are used, by %d sketches: nothing had to be forgotten", m.size, m.most, len(m.sketches))
	}
	if grown := heap() - before; grown > m.most {
		t.Errorf("the heap grew by %d bytes, more than the %d that may be remembered (said: %d)", grown, m.most, m.size)
	}
	sum := 0
	for _, s := range m.sketches {
		sum += s.size
	}
	if sum != m.size {
		t.Errorf("the size is %d, of all together %d", m.size, sum)
	}
	runtime.KeepAlive(docs)
}
