package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A Fixture has the Limiter under test.
type Fixture struct {
	Limiter enforcement.Limiter
	// Leased is set if the Limiter may hold a tenth of a limit on lease. After a change of the
	// numbers of a limit, units on lease count as used.
	Leased bool
}

// A Factory returns the Limiter for one test. The Limiter must use the clock c. The
// factory releases its resources with t.Cleanup.
type Factory = func(t *testing.T, c *Clock) Fixture

// Run runs the tests of the suite, except Sequences.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Steps", stepTests},
		{"Worked", workedTests},
		{"Take", takeTests},
		{"Bounds", boundTests},
		{"Calendar", calendarTests},
		{"Rollover", rolloverTests},
		{"Idempotency", idempotencyTests},
		{"LeakyBucket", leakyBucketTests},
		{"Concurrency", concurrencyTests},
		{"CarryOver", carryOverTests},
		{"Grants", grantTests},
		{"GrantsAndEngine", grantEngineTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					tt.run(newWorld(t, factory))
				})
			}
		})
	}
}

// A test is one named test of the suite.
type test struct {
	name string
	run  func(w *harness)
}

// A harness has what one test needs: a limiter, its clock, and counters that no other
// test uses.
type harness struct {
	*testing.T
	clock   *Clock
	limiter enforcement.Limiter
	leased  bool
	tenant  uint32
	salt    [15]byte
	granted map[int]*enforcement.Meter // by the number of the grant in its sequence
}

func newWorld(t *testing.T, factory Factory) *harness {
	t.Helper()
	c := NewClock()
	f := factory(t, c)
	w := &harness{T: t, clock: c, limiter: f.Limiter, leased: f.Leased}
	w.renew()
	return w
}

// renew selects new counters, which are unused.
func (w *harness) renew() {
	w.tenant, w.granted = rand.Uint32(), nil
	for i := range w.salt {
		w.salt[i] = byte(rand.Uint32())
	}
}

// key returns the key of a counter of this test.
func (w *harness) key(cell uint32, partition byte) enforcement.Key {
	k := enforcement.Key{Tenant: w.tenant, Cell: cell}
	copy(k.Partition[:], w.salt[:])
	k.Partition[15] = partition
	return k
}

// homeOf returns the home of a tenant. All counters of a tenant have the same home.
func homeOf(tenant uint32) string { return fmt.Sprintf("%02x", tenant%64) }

// request returns a request with charges. All charges must have the same tenant.
func (w *harness) request(mode enforcement.Mode, charges ...enforcement.Charge) enforcement.Request {
	r := enforcement.Request{Mode: mode, Charges: charges, Home: homeOf(w.tenant)}
	if len(charges) > 0 {
		r.Home = homeOf(charges[0].Key.Tenant)
	}
	for i := range r.ID {
		r.ID[i] = byte(rand.Uint32())
	}
	r.Lease.ID = r.ID
	return r
}

// take makes one call of Take. It fails the test if a request is not decided.
func (w *harness) take(requests ...enforcement.Request) []enforcement.Outcome {
	w.Helper()
	outcomes := make([]enforcement.Outcome, len(requests))
	w.limiter.Take(context.Background(), requests, outcomes)
	for i := range outcomes {
		if err := check(&requests[i], &outcomes[i], w.clock.Now()); err != nil {
			w.Fatalf("request %d: %v", i, err)
		}
	}
	return outcomes
}

// check returns an error unless the outcome was decided at the time now and has a result for
// each charge.
func check(r *enforcement.Request, o *enforcement.Outcome, now int64) error {
	switch {
	case !o.Verdict.Decided() || o.Err != nil:
		return fmt.Errorf("not decided: verdict %s: %w", o.Verdict, o.Err)
	case o.At != now:
		return fmt.Errorf("decided at %d, the clock shows %d", o.At, now)
	case len(o.Charges) != len(r.Charges):
		return fmt.Errorf("%d charges, want %d", len(o.Charges), len(r.Charges))
	}
	return nil
}

// A limited is a limit whose numbers change during a test, with the meters of all its
// revisions.
type limited struct {
	limit  enforcement.Limit
	meters []*enforcement.Meter // by revision, from revision 1 on
}

func newLimited(limit enforcement.Limit) *limited {
	return &limited{limit: limit, meters: []*enforcement.Meter{limit.Compile(1)}}
}

// change adds a revision with other numbers. They come into force at the time now.
func (l *limited) change(limit enforcement.Limit, now int64) {
	old := l.now()
	m := limit.Compile(old.Rev + 1)
	m.Formers = append(append(m.Formers, old.Formers...),
		enforcement.Former{Numbers: old.Numbers, Rev: old.Rev, Until: now, CarryOver: limit.CarryOver})
	l.limit, l.meters = limit, append(l.meters, m)
}

// now returns the meter of the latest revision.
func (l *limited) now() *enforcement.Meter { return l.meters[len(l.meters)-1] }

// at returns the meter of a revision. 0 stands for the latest revision.
func (l *limited) at(rev int64) *enforcement.Meter {
	if rev == 0 {
		return l.now()
	}
	return l.meters[rev-1]
}

// noDelay is the delay of a step whose request does not wait.
const noDelay time.Duration = -1

// never is the result of retryOf if the cost can never fit.
const never time.Duration = -1

// retryOf returns Meter.RetryAfter as a duration, or never.
func retryOf(m *enforcement.Meter, s enforcement.State, at, cost int64, lease enforcement.Lease) time.Duration {
	micros, ok := m.RetryAfterFor(s, at, cost, &lease)
	if !ok {
		return never
	}
	return time.Duration(micros) * time.Microsecond
}

// A step is one request on one counter, with the expected result.
type step struct {
	at   time.Duration // after Start
	mode enforcement.Mode
	cost int64
	no   bool // expect Refused
	over bool // in mode Force, the cost does not fit but Granted is expected
	left int64
	// reset is the expected ResetAfter.
	reset time.Duration
	// retry is the expected RetryAfter of a cost that does not fit.
	retry time.Duration
	units int64 // expected Units
	// delay is the expected Delay of a leaky bucket. 0 means that the test does not compare it;
	// noDelay stands for an expected delay of 0.
	delay time.Duration
	// id is the ID of the request's lease, and ttl is the time to live of this lease.
	id  byte
	ttl time.Duration
	n   int // number of identical requests, of which the last one is compared; 0 stands for 1
	// to has the numbers that come into force before the step, or is nil.
	to *enforcement.Limit
	// rev is the revision of the request; 0 stands for the latest one.
	rev int64
	// what describes the step in the message of a failure.
	what string
}

// play makes the requests of steps on an unused counter and compares the results.
func (w *harness) play(limit enforcement.Limit, steps []step) {
	w.Helper()
	l := newLimited(limit)
	key := w.key(1, 0)
	for i, s := range steps {
		now := Start + s.at.Microseconds()
		w.clock.Set(now)
		if s.to != nil {
			l.change(*s.to, now)
		}
		m := l.at(s.rev)
		var o enforcement.Outcome
		for range max(s.n, 1) {
			r := w.request(s.mode, enforcement.Charge{Key: key, Meter: m, Rev: m.Rev, Cost: s.cost})
			if s.id != 0 {
				r.Lease = s.lease()
			}
			o = w.take(r)[0]
		}
		if err := s.compare(m, &o); err != nil {
			w.Fatalf("%s, step %d at %s, %s of %d (%s): %v", limit.Algorithm, i, s.at, s.mode, s.cost, s.what, err)
		}
	}
}

// lease returns the lease of the step's request.
func (s *step) lease() enforcement.Lease {
	return enforcement.Lease{ID: [16]byte{s.id, 1}, TTL: s.ttl.Microseconds()}
}

// compare returns an error if an outcome differs from the expected result of the step.
func (s *step) compare(m *enforcement.Meter, o *enforcement.Outcome) error {
	c := &o.Charges[0]
	if granted := o.Verdict == enforcement.Granted; granted == s.no {
		return fmt.Errorf("%s, with %d left", o.Verdict, m.Left(c.State, o.At))
	}
	if delay := time.Duration(m.Delay(&c.State, max(s.units, s.cost))) * time.Microsecond; s.delay != 0 && delay != max(s.delay, 0) {
		return fmt.Errorf("delay %s, want %s", delay, max(s.delay, 0))
	}
	if o.Units != s.units {
		return fmt.Errorf("granted %d units, want %d", o.Units, s.units)
	}
	if c.Cost != s.cost {
		return fmt.Errorf("cost %d, want %d", c.Cost, s.cost)
	}
	if asks(s.mode) && c.Fits == (s.no || s.over) {
		return fmt.Errorf("fits is %t", c.Fits)
	}
	if left := m.Remaining(c.State, o.At); left != s.left {
		return fmt.Errorf("%d remaining, want %d", left, s.left)
	}
	if reset := time.Duration(m.ResetAfter(c.State, o.At)) * time.Microsecond; reset != s.reset {
		return fmt.Errorf("reset after %s, want %s", reset, s.reset)
	}
	if s.no {
		if retry := retryOf(m, c.State, o.At, s.cost, s.lease()); retry != s.retry {
			return fmt.Errorf("retry after %s, want %s", retry, s.retry)
		}
	}
	return nil
}

// asks reports whether requests with a mode compare the cost with what is left. Refund,
// Reset and Release do not.
func asks(m enforcement.Mode) bool {
	return m != enforcement.Refund && m != enforcement.Reset && m != enforcement.Release
}

// same fails the test if got differs from want.
func (w *harness) same(got, want any, what string) {
	w.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
