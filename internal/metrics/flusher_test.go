package metrics_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
)

// patient is a time-out that a busy machine does not reach.
const patient = time.Minute

// opened gives a migrated Store that is closed after the test.
func opened(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func sqlite(t testing.TB) *store.Store {
	t.Helper()
	return opened(t, "sqlite://"+filepath.Join(t.TempDir(), "h.db"))
}

// A clock stands still until it is moved.
type clock struct{ at atomic.Int64 } // nanoseconds since the epoch

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 11, 21, 11, 58, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time      { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) Add(d time.Duration) { c.at.Add(int64(d)) }

// A ledger is what clients know: decisions by tenant, and refusals among them.
type ledger struct {
	mu     sync.Mutex
	counts map[uint32]tally
	number uint64
}

type tally struct{ Requests, Refused int64 }

func newLedger() *ledger { return &ledger{counts: make(map[uint32]tally)} }

// decide passes a decision to a Recorder and records it in the ledger.
func (l *ledger) decide(r *metrics.Recorder, tenant uint32, at time.Time, allowed bool) (id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16|0x7000)
	binary.BigEndian.PutUint64(id[8:], 1<<63|l.number)
	d := enforcement.Decision{
		ID: id, Allowed: allowed, Reason: enforcement.ReasonOK, Route: fmt.Sprintf("/v1/%d", l.number%5),
		Subject: &enforcement.Subject{Number: tenant, Tenant: fmt.Sprintf("t%d", tenant)},
		Check:   &enforcement.Check{Method: "GET", Path: "/v1/x", Mode: enforcement.Enforce, Cost: 1},
	}
	if !allowed {
		d.Reason, d.RetryAfter = enforcement.ReasonOverLimit, 1500
	}
	r.Record(&d)
	for _, n := range []uint32{tenant, 0} {
		c := l.counts[n]
		c.Requests++
		if !allowed {
			c.Refused++
		}
		l.counts[n] = c
	}
	return id
}

// check compares a Store's totals and routes with the ledger.
func (l *ledger) check(t *testing.T, s metrics.Store, around time.Time) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range []metrics.Kind{metrics.KindTotal, metrics.KindRoute} {
		have := make(map[uint32]tally)
		for tenant := range l.counts {
			rows, err := s.Counts(t.Context(), metrics.CountQuery{
				Step: metrics.Minute, From: around.Add(-48 * time.Hour).Unix(), To: around.Add(48 * time.Hour).Unix(), Tenant: tenant, Kind: kind,
			})
			if err != nil {
				t.Fatal(err)
			}
			var c tally
			for i := range rows {
				c.Requests += rows[i].Requests
				c.Refused += rows[i].Limited()
			}
			have[tenant] = c
		}
		if diff := cmp.Diff(l.counts, have); diff != "" {
			t.Errorf("%s (-ledger +store):\n%s", kind, diff)
		}
	}
}

// A faulty Store calls fault with the number of each AddCounts, from 1, and fails as fault
// returns.
type faulty struct {
	metrics.Store
	calls atomic.Int64
	fault func(call int64) fault
	tenth chan struct{} // closed at the tenth call, if there is one
}

type fault int

const (
	works    fault = iota
	refuses        // nothing is done
	hangs          // nothing is done until the caller gives up
	unknown        // it is done, and the answer is lost
	tooLate        // it is done, and answered when the caller has given up
	notValid       // the batch is refused for its content
)

var errFaulty = &problem.Problem{Kind: problem.Unavailable, Message: "the database is away"}

func (f *faulty) AddCounts(ctx context.Context, b metrics.Batch) error {
	call := f.calls.Add(1)
	if call == 10 && f.tenth != nil {
		close(f.tenth)
	}
	switch f.fault(call) {
	case refuses:
		return errFaulty
	case hangs:
		return gaveUp(ctx)
	case unknown:
		return errors.Join(f.Store.AddCounts(ctx, b), errFaulty)
	case tooLate:
		return errors.Join(f.Store.AddCounts(ctx, b), gaveUp(ctx))
	case notValid:
		if len(b.Refusals) > 0 {
			return problem.New(problem.Invalid, "a value cannot be stored")
		}
	}
	return f.Store.AddCounts(ctx, b)
}

// gaveUp waits as for a deadline that is near.
func gaveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

// always is a fault of every call until it is changed.
type always struct{ now atomic.Int64 }

func (a *always) set(f fault)         { a.now.Store(int64(f)) }
func (a *always) fault(_ int64) fault { return fault(a.now.Load()) }

func TestFlusherWritesWhatWasCounted(t *testing.T) {
	t.Parallel()
	s, c, l := sqlite(t), newClock(), newLedger()
	r := metrics.NewRecorder(metrics.Config{Node: "n1", Now: c.Now})
	f := metrics.NewFlusher(r, s, metrics.FlusherConfig{Now: c.Now})
	if err := f.Flush(t.Context()); err != nil { // there is nothing yet
		t.Fatal(err)
	}
	var refused [16]byte
	for i := range 300 {
		l.decide(r, uint32(i%7+1), c.Now(), i%10 != 0)
		c.Add(time.Second)
	}
	refused = l.decide(r, 1, c.Now(), false)
	if _, found := f.PendingRefusal(refused); !found {
		t.Error("a refusal that was just recorded is not pending")
	}
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.check(t, s, c.Now())
	if kept, err := s.Refusal(t.Context(), refused, 1); err != nil || kept.Node != "n1" || kept.RetryAfterMS != 1500 {
		t.Errorf("the refusal: %+v, error %v", kept, err)
	}
	if _, found := f.PendingRefusal(refused); found {
		t.Error("a refusal that was written is pending")
	}
	if state := f.Status(); state.WaitingRows != 0 || state.Waiting != 0 || state.Flushed != 1 || state.Failed != 0 || state.Folded != 0 {
		t.Errorf("state %+v", state)
	}
}

// Several goroutines record decisions while AddCounts fails in every way. All decisions
// that were recorded before the end are in the Store, once.
func TestFlusherIsExactInEveryFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(int64) fault{
		"works":     func(int64) fault { return works },
		"every way": func(call int64) fault { return fault((call * 7) % 5) },
		"at first":  func(call int64) fault { return []fault{refuses, unknown, tooLate, hangs, works}[min(call, 5)-1] },
		"lost":      func(call int64) fault { return []fault{works, unknown}[call%2] },
		"late":      func(call int64) fault { return []fault{tooLate, works, works}[call%3] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l := sqlite(t), newLedger()
			c := newClock()
			wrapped := &faulty{Store: s, fault: fault, tenth: make(chan struct{})}
			r := metrics.NewRecorder(metrics.Config{Now: c.Now})
			f := metrics.NewFlusher(r, wrapped, metrics.FlusherConfig{
				Interval: time.Millisecond, Timeout: patient, StopTimeout: patient, Now: c.Now,
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			var deciding sync.WaitGroup
			for g := range 3 {
				deciding.Go(func() {
					for i := 0; ; i++ {
						l.decide(r, uint32(g*2+i%4+1), c.Now(), i%3 != 0)
						if i < 300 {
							c.Add(50 * time.Millisecond)
							continue
						}
						select {
						case <-wrapped.tenth: // Run sends while decisions are made
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
			deciding.Wait()
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			l.check(t, s, c.Now())
			if state := f.Status(); state.WaitingRows != 0 || state.Folded != 0 {
				t.Errorf("state %+v", state)
			}
		})
	}
}

// The process ends with a batch whose commit was not confirmed. The next process is another
// node: the batch is stored once, and what was not sent is lost.
func TestFlusherDies(t *testing.T) {
	t.Parallel()
	s, c, l := sqlite(t), newClock(), newLedger()
	lost := newLedger()
	r := metrics.NewRecorder(metrics.Config{Now: c.Now})
	for range 100 {
		l.decide(r, 1, c.Now(), true)
	}
	f := metrics.NewFlusher(r, &faulty{Store: s, fault: func(int64) fault { return unknown }}, metrics.FlusherConfig{Now: c.Now})
	if err := f.Flush(t.Context()); err == nil {
		t.Fatal("the answer was not lost")
	}
	for range 10 {
		lost.decide(r, 1, c.Now(), true)
	}
	again := metrics.NewRecorder(metrics.Config{Now: c.Now})
	for range 7 {
		l.decide(again, 1, c.Now(), true)
	}
	if err := metrics.NewFlusher(again, s, metrics.FlusherConfig{Now: c.Now}).Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.check(t, s, c.Now())
}

// While the database is unavailable for ten minutes, all counts wait, and more decisions
// are counted behind a batch without acknowledgement.
func TestFlusherWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	s, c, l := sqlite(t), newClock(), newLedger()
	var away always
	away.set(refuses)
	r := metrics.NewRecorder(metrics.Config{Now: c.Now})
	f := metrics.NewFlusher(r, &faulty{Store: s, fault: away.fault}, metrics.FlusherConfig{Now: c.Now})
	began := c.Now()
	first := l.decide(r, 1, c.Now(), false)
	for range 600 {
		for tenant := range uint32(5) {
			l.decide(r, tenant+1, c.Now(), true)
		}
		if err := f.Flush(t.Context()); !problem.Is(err, problem.Unavailable) {
			t.Fatalf("error %v", err)
		}
		c.Add(time.Second)
	}
	last := l.decide(r, 1, c.Now(), false)
	for _, id := range [][16]byte{first, last} {
		if _, found := f.PendingRefusal(id); !found {
			t.Error("a refusal that waits is not found")
		}
	}
	state := f.Status()
	if state.Waiting != c.Now().Sub(began) || state.Failed != 600 || state.Flushed != 0 || state.WaitingRows < 10*5*2 ||
		state.WaitingRefusals != 1 || !state.FailingSince.Equal(began) || !state.FlushedAt.IsZero() {
		t.Errorf("state %+v", state)
	}
	away.set(works)
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.check(t, s, c.Now())
	if state := f.Status(); state.WaitingRows != 0 || state.Waiting != 0 || state.Folded != 0 || state.NotKept != 0 ||
		state.WaitingRefusals != 0 || !state.FailingSince.IsZero() || !state.FlushedAt.Equal(c.Now()) {
		t.Errorf("state %+v", state)
	}
}

// A refusal that no Store takes does not stop the counts.
func TestFlusherGivesUpWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	s, c, l := sqlite(t), newClock(), newLedger()
	r := metrics.NewRecorder(metrics.Config{Now: c.Now})
	f := metrics.NewFlusher(r, &faulty{Store: s, fault: func(int64) fault { return notValid }}, metrics.FlusherConfig{Now: c.Now})
	l.decide(r, 1, c.Now(), false)
	l.decide(r, 2, c.Now(), true)
	if err := f.Flush(t.Context()); !problem.Is(err, problem.Invalid) {
		t.Fatalf("error %v", err)
	}
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.check(t, s, c.Now())
	if state := f.Status(); state.NotKept != 1 {
		t.Errorf("state %+v", state)
	}
}

// sketchDocs are the documents of retry times of a minute, whose only bucket has
// the number of refusals.
func sketchDocs(t *testing.T, s metrics.Store, at time.Time) []string {
	t.Helper()
	rows, err := s.Sketches(t.Context(), metrics.SketchQuery{
		Step: metrics.Minute, From: at.Unix(), To: at.Unix() + 60, Tenant: 1, Name: metrics.SketchRetryAfter,
	})
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, r := range rows {
		docs = append(docs, string(r.Doc))
	}
	return docs
}

// Each writing of a sketch has all of its minute, what came late included; what
// comes when it was forgotten does not replace it.
func TestFlusherWritesSketchesWhole(t *testing.T) {
	t.Parallel()
	s, c, l := sqlite(t), newClock(), newLedger()
	r := metrics.NewRecorder(metrics.Config{Now: c.Now})
	f := metrics.NewFlusher(r, s, metrics.FlusherConfig{Now: c.Now})
	minute := c.Now()
	refused := func(n int) {
		t.Helper()
		docs := sketchDocs(t, s, minute)
		if len(docs) != 1 || !strings.Contains(docs[0], fmt.Sprintf(",%d]", n)) {
			t.Fatalf("documents %s, want one with %d", docs, n)
		}
	}
	for i := range 3 {
		l.decide(r, 1, c.Now(), false)
		if err := f.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused(i + 1)
		c.Add(10 * time.Second)
	}
	c.Add(time.Minute)
	l.decide(r, 1, minute, false) // late
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(4)
	c.Add(10 * time.Minute)
	l.decide(r, 1, c.Now(), false)
	if err := f.Flush(t.Context()); err != nil { // lets the old minute go
		t.Fatal(err)
	}
	l.decide(r, 1, minute, false) // too late for its sketch
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(4)
	l.check(t, s, c.Now())
}

// One node rolls up until it dies, then another; each hour and day has all.
func TestRollerTakesOverAndMissesNothing(t *testing.T) {
	t.Parallel()
	path := "sqlite://" + filepath.Join(t.TempDir(), "h.db")
	c, l := newClock(), newLedger()
	timed := func() *store.Store {
		s, err := store.Open(t.Context(), store.Config{URL: path, Timeout: patient, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := timed(), timed()
	config := metrics.RollerConfig{Now: c.Now, Minutes: 3 * time.Hour}
	first, second := metrics.NewRoller(a, config), metrics.NewRoller(b, config)
	r := metrics.NewRecorder(metrics.Config{Now: c.Now})
	f := metrics.NewFlusher(r, a, metrics.FlusherConfig{Now: c.Now})
	turn := func(roller *metrics.Roller) {
		t.Helper()
		if err := roller.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	began := c.Now()
	sum := func(step metrics.Step) (n int64) {
		t.Helper()
		rows, err := b.Counts(t.Context(), metrics.CountQuery{
			Step: step, From: began.Unix() / 86400 * 86400, To: began.Unix()/86400*86400 + 5*86400, Tenant: 0, Kind: metrics.KindTotal,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			n += row.Requests
		}
		return n
	}
	for range 4 * 60 { // four hours, a decision and a refusal a minute
		l.decide(r, 1, c.Now(), true)
		l.decide(r, 2, c.Now(), false)
		c.Add(time.Minute)
	}
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	turn(first)
	whole := 2 * int64(4*60)
	open := 2 * int64(58) // of the hour that is not over
	if n := sum(metrics.Hour); n != whole-open {
		t.Errorf("hours have %d, want %d", n, whole-open)
	}
	docs, err := b.Sketches(t.Context(), metrics.SketchQuery{Step: metrics.Hour, From: began.Unix() - 7200, To: c.Now().Unix(), Tenant: 2, Name: metrics.SketchRetryAfter})
	if err != nil || len(docs) != 4 {
		t.Errorf("%d sketches of hours, error %v; want 4", len(docs), err)
	}
	c.Add(2 * time.Hour)
	l.decide(r, 1, c.Now().Add(-90*time.Minute), true) // a late one of an hour that is over
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	turn(first) // took the lease anew
	if n := sum(metrics.Hour); n != whole+1 {
		t.Errorf("hours have %d, want %d", n, whole+1)
	}
	turn(second) // has no lease
	before := maps.Clone(l.counts)
	c.Add(24 * time.Hour)
	turn(second) // the other died
	if n := sum(metrics.Day); n != before[0].Requests {
		t.Errorf("the day has %d, want %d", n, before[0].Requests)
	}
	if n := sum(metrics.Minute); n != 0 {
		t.Errorf("%d are left in minutes that are old", n)
	}
}
