package journal_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/journal"
	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/internal/testseed"
)

// A table is the Store of these tests. internal/store/storetest tests the real one.
type table struct {
	mu   sync.Mutex
	rows map[enforcement.Key]enforcement.Stored
	err  error // of each write
}

func (s *table) WriteJournal(_ context.Context, states []enforcement.Stored) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	for _, row := range states {
		if was, found := s.rows[row.Key]; !found || row.At >= was.At {
			s.rows[row.Key] = row
		}
	}
	return nil
}

func (s *table) ReadJournal(_ context.Context, _ string, after enforcement.Key, limit int) (list []enforcement.Stored, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, row := range s.rows {
		if compare(key, after) > 0 {
			list = append(list, row)
		}
	}
	slices.SortFunc(list, func(a, b enforcement.Stored) int { return compare(a.Key, b.Key) })
	return list[:min(len(list), limit)], nil
}

func compare(a, b enforcement.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Cell, b.Cell), bytes.Compare(a.Partition[:], b.Partition[:]))
}

func (s *table) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *table) a(key enforcement.Key) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[key].State.A
}

type fixture struct {
	*testing.T
	clock *limitertest.Clock
	table *table
	j     *journal.Journal
}

func newFixture(t *testing.T, c journal.Config) *fixture {
	f := &fixture{T: t, clock: limitertest.NewClock(), table: &table{rows: map[enforcement.Key]enforcement.Stored{}}}
	f.j = journal.New(inprocess.New(inprocess.Config{Now: f.clock.Now}), c)
	f.j.Open(f.table)
	return f
}

func (f *fixture) flush() {
	f.Helper()
	if err := f.j.Flush(f.Context()); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) take(r enforcement.Request) enforcement.Outcome {
	outcomes := make([]enforcement.Outcome, 1)
	f.j.Take(f.Context(), []enforcement.Request{r}, outcomes)
	return outcomes[0]
}

func limit(quota int64, window time.Duration) *enforcement.Meter {
	return enforcement.Limit{Name: "l", Algorithm: enforcement.FixedWindow, Quota: quota, Window: window}.Compile(1)
}

func charge(m *enforcement.Meter, cell uint32, cost int64) enforcement.Charge {
	return enforcement.Charge{Key: enforcement.Key{Tenant: 1, Cell: cell}, Meter: m, Rev: m.Rev, Cost: cost}
}

func request(charges ...enforcement.Charge) enforcement.Request {
	return enforcement.Request{Home: "00", Charges: charges}
}

// A Journal makes the decisions of its limiter.
func TestConformance(t *testing.T) {
	limitertest.Run(t, func(_ *testing.T, c *limitertest.Clock) limitertest.Fixture {
		j := journal.New(inprocess.New(inprocess.Config{Now: c.Now}), journal.Config{})
		j.Open(&table{rows: map[enforcement.Key]enforcement.Stored{}})
		return limitertest.Fixture{Limiter: j}
	})
}

// After a flush, a limiter that lost everything is restored to the states of the durable
// counters, and decides as the old one does.
func TestRestore(t *testing.T) {
	limits := []*enforcement.Meter{
		limit(50, time.Hour), limit(1_000_000, time.Hour), limit(50, time.Minute),
		enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 70, Period: enforcement.Month, Window: enforcement.Month.Longest(), Anchor: enforcement.ByCalendar}.Compile(1),
		enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 70, Window: time.Hour, Durability: enforcement.Durable}.Compile(1),
		enforcement.Limit{Algorithm: enforcement.SlidingWindowCounter, Quota: 70, Window: time.Minute, Durability: enforcement.Durable}.Compile(1),
		enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 50, Window: time.Hour, Durability: enforcement.NotDurable}.Compile(1),
	}
	random := rand.New(rand.NewPCG(testseed.Seed(t), 0))
	for range 200 {
		f := newFixture(t, journal.Config{})
		for range random.IntN(200) {
			cell := random.IntN(len(limits))
			r := request(charge(limits[cell], uint32(cell), random.Int64N(9)))
			r.Charges[0].Key.Partition[0] = byte(random.IntN(3))
			r.Mode = []enforcement.Mode{
				enforcement.Enforce, enforcement.Enforce, enforcement.Force, enforcement.Refund, enforcement.TakeUpTo, enforcement.Peek, enforcement.Reset,
			}[random.IntN(7)]
			f.take(r)
			f.clock.Advance(time.Microsecond + time.Duration(random.IntN(40))*time.Second)
			if random.IntN(20) == 0 {
				f.flush()
			}
		}
		f.flush()
		fresh := inprocess.New(inprocess.Config{Now: f.clock.Now})
		restored := journal.New(fresh, journal.Config{Lost: true})
		restored.Open(f.table)
		if _, err := restored.Restore(t.Context(), fresh.Restore); err != nil {
			t.Fatal(err)
		}
		for cell, m := range limits {
			for part := range byte(3) {
				r := request(charge(m, uint32(cell), 0))
				r.Charges[0].Key.Partition[0] = part
				r.Mode = enforcement.Peek
				outcomes := make([]enforcement.Outcome, 1)
				restored.Take(t.Context(), []enforcement.Request{r}, outcomes)
				now := f.clock.Now()
				got, want := m.Left(outcomes[0].Charges[0].State, now), m.Left(f.take(r).Charges[0].State, now)
				if !m.Durable {
					want = m.Quota
				}
				if got != want {
					t.Fatalf("limit %d, key %d: %d left after the restoration, want %d", cell, part, got, want)
				}
			}
		}
	}
}

// Before the restoration, durable requests are not decided and not charged. Others are.
func TestLostUntilRestored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, journal.Config{Lost: true})
	durable, other := charge(limit(10, time.Hour), 1, 3), charge(limit(10, time.Minute), 2, 3)
	shadow := durable
	shadow.Group = enforcement.FirstShadowGroup
	requests := []enforcement.Request{request(durable, other), request(other), request(other, shadow)}
	outcomes := make([]enforcement.Outcome, 3)
	f.j.Take(t.Context(), requests, outcomes)
	if outcomes[0].Verdict != enforcement.Lost || outcomes[0].Err == nil || len(outcomes[0].Charges) != 0 {
		t.Errorf("a durable request: %+v", outcomes[0])
	}
	if outcomes[1].Verdict != enforcement.Granted || outcomes[2].Verdict != enforcement.Granted {
		t.Errorf("other requests: %s, %s", outcomes[1].Verdict, outcomes[2].Verdict)
	}
	if _, err := f.j.Restore(t.Context(), func([]enforcement.Stored) {}); err != nil {
		t.Fatal(err)
	}
	if o := f.take(request(durable, other)); o.Verdict != enforcement.Granted || o.Charges[1].State.A != 9 {
		t.Errorf("after the restoration: %s, %+v", o.Verdict, o.Charges)
	}
}

// A changed state is written by the next flush that is due if 0.1 % of the quota moved.
// Otherwise it waits for Longest.
func TestSmallChangesWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, journal.Config{Interval: time.Millisecond, Longest: time.Hour})
	patient, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	small, large := charge(limit(10_000, time.Hour), 1, 1), charge(limit(10_000, time.Hour), 2, 10)
	f.take(request(small, large))
	f.flush()
	for range 9 {
		f.take(request(small))
	}
	f.take(request(large))
	go func() { done <- f.j.Run(patient) }()
	for f.table.a(large.Key) != 20 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond) // between two looks
	}
	if a := f.table.a(small.Key); a != 1 || f.j.Status().Waiting != 1 {
		t.Errorf("0.09 %% of the quota moved: %d units are stored, %d states wait", a, f.j.Status().Waiting)
	}
	f.take(request(small))
	for f.table.a(small.Key) != 11 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	f.take(request(small))
	stop()
	if err := <-done; err != nil || f.table.a(small.Key) != 12 {
		t.Errorf("%v; %d units are stored after the end of Run, want all 12", err, f.table.a(small.Key))
	}
}

// While the database is unavailable, states wait in memory. When it returns, the newest one
// is written.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t, journal.Config{})
	c := charge(limit(10_000, time.Hour), 1, 100)
	f.table.fail(errors.New("away"))
	for range 3 {
		f.take(request(c))
		if f.j.Flush(t.Context()) == nil {
			t.Fatal("no error")
		}
	}
	if s := f.j.Status(); s.Waiting != 1 || s.Failure == nil || s.FailingSince.IsZero() || s.Written != 0 {
		t.Errorf("%+v", s)
	}
	f.table.fail(nil)
	f.flush()
	if s := f.j.Status(); s.Waiting != 0 || s.Failure != nil || !s.FailingSince.IsZero() || s.Written != 1 || f.table.a(c.Key) != 300 {
		t.Errorf("%+v, %d units are stored", s, f.table.a(c.Key))
	}
}

// The memory is bounded. Changes that are not kept are counted. Written states make room.
func TestBounded(t *testing.T) {
	t.Parallel()
	const most = 640
	f := newFixture(t, journal.Config{MaxStates: most})
	m := limit(10_000, time.Hour)
	flood := func(from uint32) {
		for cell := range uint32(5 * most) {
			f.take(request(charge(m, from+cell, 1)))
		}
	}
	flood(1)
	s := f.j.Status()
	if s.Waiting > most || s.Waiting < most/2 || int64(s.Waiting)+s.NotKept != 5*most {
		t.Fatalf("%+v", s)
	}
	for cell := range uint32(5 * most) {
		f.flush()
		f.take(request(charge(m, 100_000+cell, 1)))
	}
	if now := f.j.Status(); now.NotKept != s.NotKept {
		t.Errorf("%d more changes are not kept", now.NotKept-s.NotKept)
	}
}

// A reset is stored before the caller has its outcome, so that a crash cannot undo it. A state
// from before the reset does not replace it.
func TestResetIsStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, journal.Config{})
	c := charge(limit(10, time.Hour), 1, 7)
	f.take(request(c))
	f.flush()
	before := f.table.rows[c.Key]
	f.clock.Advance(time.Second)
	r := request(c)
	r.Mode = enforcement.Reset
	if o := f.take(r); o.Verdict != enforcement.Granted {
		t.Fatal(o.Verdict)
	}
	if row := f.table.rows[c.Key]; !row.State.Fresh() {
		t.Errorf("after the reset: %+v", row)
	}
	before.State.A = 9
	_ = f.table.WriteJournal(t.Context(), []enforcement.Stored{before})
	fresh := inprocess.New(inprocess.Config{Now: f.clock.Now})
	fresh.Restore([]enforcement.Stored{f.table.rows[c.Key]})
	if n := fresh.Len(); n != 0 {
		t.Errorf("%d counters after the restoration of a reset", n)
	}
}

// Concurrent charges of one key are stored with the last state.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, journal.Config{})
	c := charge(limit(1_000_000, time.Hour), 1, 1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			outcomes := make([]enforcement.Outcome, 1)
			for range 500 {
				f.j.Take(t.Context(), []enforcement.Request{request(c)}, outcomes)
				if rand.IntN(100) == 0 {
					_ = f.j.Flush(t.Context())
				}
			}
		})
	}
	all.Wait()
	f.flush()
	if a := f.table.a(c.Key); a != 4000 {
		t.Errorf("%d units are stored, want 4000", a)
	}
}
