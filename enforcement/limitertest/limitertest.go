package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A Fixture is a Limiter under test.
type Fixture struct {
	Limiter enforcement.Limiter
}

// A Factory returns the Limiter of one test. The Limiter uses the time of c. The
// factory closes its resources with t.Cleanup.
type Factory = func(t *testing.T, c *Clock) Fixture

// Run runs the suite.
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

// A test of the suite.
type test struct {
	name string
	run  func(w *world)
}

// A world is what one test has to itself: a limiter, its clock, and counters
// that nobody else uses.
type world struct {
	*testing.T
	clock   *Clock
	limiter enforcement.Limiter
	tenant  uint32
	salt    [15]byte
}

func newWorld(t *testing.T, factory Factory) *world {
	t.Helper()
	c := NewClock()
	f := factory(t, c)
	w := &world{T: t, clock: c, limiter: f.Limiter}
	w.renew()
	return w
}

// renew turns to counters that nobody has used.
func (w *world) renew() {
	w.tenant = rand.Uint32()
	for i := range w.salt {
		w.salt[i] = byte(rand.Uint32())
	}
}

// key is one of the world's own counters.
func (w *world) key(cell uint32, partition byte) enforcement.Key {
	k := enforcement.Key{Tenant: w.tenant, Cell: cell}
	copy(k.Partition[:], w.salt[:])
	k.Partition[15] = partition
	return k
}

// homeOf gives each tenant the one home that all its counters have.
func homeOf(tenant uint32) string { return fmt.Sprintf("%02x", tenant%64) }

// request makes a request of charges, which must be of one tenant.
func (w *world) request(mode enforcement.Mode, charges ...enforcement.Charge) enforcement.Request {
	r := enforcement.Request{Mode: mode, Charges: charges, Home: homeOf(w.tenant)}
	if len(charges) > 0 {
		r.Home = homeOf(charges[0].Key.Tenant)
	}
	for i := range r.ID {
		r.ID[i] = byte(rand.Uint32())
	}
	return r
}

// take has the requests decided in one call and fails the test unless all are.
func (w *world) take(requests ...enforcement.Request) []enforcement.Outcome {
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

// check holds an outcome to what every decided outcome has.
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

// A limited is a limit in force, with the numbers that it had before.
type limited struct {
	limit  enforcement.Limit
	meters []*enforcement.Meter // by revision, the first at 1
}

func newLimited(limit enforcement.Limit) *limited {
	return &limited{limit: limit, meters: []*enforcement.Meter{limit.Compile(1)}}
}

// change puts other numbers in force at now, one revision higher.
func (l *limited) change(limit enforcement.Limit, now int64) {
	old := l.now()
	m := limit.Compile(old.Rev + 1)
	m.Formers = append(append(m.Formers, old.Formers...),
		enforcement.Former{Numbers: old.Numbers, Rev: old.Rev, Until: now})
	l.limit, l.meters = limit, append(l.meters, m)
}

// now is the meter in force.
func (l *limited) now() *enforcement.Meter { return l.meters[len(l.meters)-1] }

// at is the meter that was in force at a revision; 0 is the present one.
func (l *limited) at(rev int64) *enforcement.Meter {
	if rev == 0 {
		return l.now()
	}
	return l.meters[rev-1]
}

// never is a retry time that will not come.
const never time.Duration = -1

// retryOf turns what RetryAfter says into a duration; never when it cannot be.
func retryOf(m *enforcement.Meter, s enforcement.State, at, cost int64) time.Duration {
	micros, ok := m.RetryAfter(s, at, cost)
	if !ok {
		return never
	}
	return time.Duration(micros) * time.Microsecond
}

// A step is one request on one counter, and what must come of it. Every number
// is compared.
type step struct {
	at   time.Duration // after Start
	mode enforcement.Mode
	cost int64
	no   bool // refused
	over bool // forced, though it did not fit
	left int64
	// reset is when the counter will be as new.
	reset time.Duration
	// retry is when a refused cost would pass.
	retry time.Duration
	units int64 // granted by TakeUpTo
	n     int   // how often, at one instant; the last is compared, 0 is once
	// to changes the numbers before the step.
	to *enforcement.Limit
	// rev asks with the numbers of an earlier revision.
	rev int64
	// what says what the step shows.
	what string
}

// play plays steps on a counter that is new.
func (w *world) play(limit enforcement.Limit, steps []step) {
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
			o = w.take(w.request(s.mode, enforcement.Charge{Key: key, Meter: m, Rev: m.Rev, Cost: s.cost}))[0]
		}
		if err := s.compare(m, &o); err != nil {
			w.Fatalf("%s, step %d at %s, %s of %d (%s): %v", limit.Algorithm, i, s.at, s.mode, s.cost, s.what, err)
		}
	}
}

// compare holds one outcome against the step.
func (s *step) compare(m *enforcement.Meter, o *enforcement.Outcome) error {
	c := &o.Charges[0]
	if granted := o.Verdict == enforcement.Granted; granted == s.no {
		return fmt.Errorf("%s, with %d left", o.Verdict, m.Left(c.State, o.At))
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
		if retry := retryOf(m, c.State, o.At, s.cost); retry != s.retry {
			return fmt.Errorf("retry after %s, want %s", retry, s.retry)
		}
	}
	return nil
}

// asks reports whether a mode compares the cost with what is left; a refund and
// a reset have nothing to fit.
func asks(m enforcement.Mode) bool { return m != enforcement.Refund && m != enforcement.Reset }

// same fails the test when got is not want.
func (w *world) same(got, want any, what string) {
	w.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
