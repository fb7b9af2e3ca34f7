package limitertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// stepsInSequence is the number of steps of a random sequence.
const stepsInSequence = 50

// Sequences plays n random sequences of 50 steps each. It compares each result with the
// model and with the reference functions. All combinations of algorithms are used
// equally often.
//
// If n is 0, Sequences reads n from HEADGATE_FUZZ_SEQUENCES; the default is 2000. If
// seed is 0, it reads the seed from HEADGATE_FUZZ_SEED; the default is a random seed. A
// failure prints the seed and the shortest list of steps that still fails.
func Sequences(t *testing.T, factory Factory, n int, seed uint64) {
	t.Helper()
	playEach(t, factory, n, seed, func(w *harness, _ *rand.Rand, s *sequence) error {
		err := s.playOn(w)
		if err == nil {
			return nil
		}
		short := s.shrink(w)
		return fmt.Errorf("%w\nshortened:\n%s%w", err, short, short.playOn(w))
	})
}

// playEach plays n random sequences, the same number of each mix. play returns an error if a result is wrong. r is the
// source of random numbers for the sequence.
func playEach(t *testing.T, factory Factory, n int, seed uint64, play func(w *harness, r *rand.Rand, s *sequence) error) {
	t.Helper()
	if n == 0 {
		n = int(fromEnvironment(t, "HEADGATE_FUZZ_SEQUENCES", 2000))
	}
	if seed == 0 {
		seed = fromEnvironment(t, "HEADGATE_FUZZ_SEED", rand.Uint64())
	}
	for _, mix := range mixes {
		t.Run(mix.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, factory)
			for i := range (n + len(mixes) - 1) / len(mixes) {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				if err := play(w, r, newSequence(r, mix.limits)); err != nil {
					t.Fatalf("replay with HEADGATE_FUZZ_SEED=%d HEADGATE_FUZZ_SEQUENCES=%d\nsequence %d: %v", seed, (i+1)*len(mixes), i, err)
				}
			}
		})
	}
}

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// A kind is an algorithm and, for windows, an anchor.
type kind struct {
	algorithm enforcement.Algorithm
	anchor    enforcement.Anchor
	rolls     bool // units may be rolled over
}

var (
	fixedFirst   = kind{algorithm: enforcement.FixedWindow, anchor: enforcement.FirstHit}
	fixedClock   = kind{algorithm: enforcement.FixedWindow, anchor: enforcement.Clock}
	byCalendar   = kind{algorithm: enforcement.FixedWindow, anchor: enforcement.ByCalendar}
	rolling      = kind{algorithm: enforcement.FixedWindow, anchor: enforcement.ByCalendar, rolls: true}
	logs         = kind{algorithm: enforcement.SlidingWindowLog, anchor: enforcement.FirstHit}
	counterFirst = kind{algorithm: enforcement.SlidingWindowCounter, anchor: enforcement.FirstHit}
	counterClock = kind{algorithm: enforcement.SlidingWindowCounter, anchor: enforcement.Clock}
	tokens       = kind{algorithm: enforcement.TokenBucket, anchor: enforcement.FirstHit}
	gcras        = kind{algorithm: enforcement.GCRA, anchor: enforcement.FirstHit}
	places       = kind{algorithm: enforcement.Concurrency, anchor: enforcement.FirstHit}
	queues       = kind{algorithm: enforcement.LeakyBucket, anchor: enforcement.FirstHit}
)

// mixes lists combinations of kinds. All limits of a sequence are from one combination.
var mixes = []struct {
	name   string
	limits []kind
}{
	{"fixed_window", []kind{fixedFirst, fixedClock}},
	{"calendar", []kind{byCalendar}},
	{"rollover", []kind{rolling, rolling, rolling, counterFirst}},
	{"sliding_window_log", []kind{logs}},
	{"sliding_window_counter", []kind{counterFirst, counterClock}},
	{"token_bucket", []kind{tokens}},
	{"gcra", []kind{gcras}},
	{"leaky_bucket", []kind{queues}},
	{"concurrency", []kind{places}},
	{"mixed", []kind{fixedFirst, fixedClock, byCalendar, logs, counterFirst, counterClock, tokens, gcras, queues, places}},
}

// A sequence is a random list of limits and moves. It can be played several times.
type sequence struct {
	limits []enforcement.Limit
	grants []granted
	steps  []move
	skew   int64 // the largest ask.skew
	// calendar is the calendar of all requests. It is -1 if their calendars differ.
	calendar int
}

// A move is one step of a sequence. It sets the clock, may change the numbers of a
// limit, and makes one call of Take.
type move struct {
	at       int64 // after Start, microseconds
	change   int   // index of the limit whose numbers change; -1 for none
	to       enforcement.Limit
	requests []ask
}

// An ask is one request of a move.
type ask struct {
	mode   enforcement.Mode
	follow bool // if the request is denied, also send it at its retry time and a millisecond before
	// calendar is the index in sequenceCalendars of the calendar of the tenant. skew is the
	// difference between the clock of the caller and that of the limiter, in microseconds.
	calendar int
	skew     int64
	// lease stands for the ID of the lease, and ttl is the time to live of the lease in microseconds.
	lease byte
	ttl   int64
	// key is the idempotency key, or 0 for none. what stands for everything that the caller sent.
	key, what byte
	charges   []askCharge
}

type askCharge struct {
	limit     int
	partition byte
	group     uint16
	cost      int64
	back      int64 // how many revisions the snapshot of the caller is behind
}

func newSequence(r *rand.Rand, kinds []kind) *sequence {
	s, of := &sequence{skew: maxSkew, calendar: -1}, []kind(nil)
	for range 1 + r.IntN(4) {
		of = append(of, kinds[r.IntN(len(kinds))])
		s.limits = append(s.limits, randomLimit(r, of[len(of)-1]))
	}
	rolls := slices.ContainsFunc(kinds, func(k kind) bool { return k.rolls })
	if rolls { // then retry times depend on later windows, so the callers must know the right ones
		s.skew = maxSkew / 400
		s.calendar = r.IntN(2*len(sequenceCalendars)) - len(sequenceCalendars)
		s.calendar = max(s.calendar, -1)
	}
	now, current := int64(r.IntN(1_000_000_000)), slices.Clone(s.limits)
	s.grants = randomGrants(r, s.limits, now)
	for range stepsInSequence {
		window := current[r.IntN(len(current))].Window.Microseconds()
		now += gap(r, window)
		if rolls && window < maxSkew && r.IntN(8) == 0 {
			now += r.Int64N(15 * window)
		}
		m := move{at: now, change: -1}
		if r.IntN(20) == 0 {
			m.change = r.IntN(len(current))
			l := current[m.change]
			m.to = randomLimit(r, of[m.change])
			if r.IntN(2) == 0 {
				m.to.Window, m.to.Period = l.Window, l.Period
			}
			current[m.change] = m.to
		}
		for range 1 + r.IntN(8)/6 {
			m.requests = append(m.requests, s.randomAsk(r, current))
		}
		s.steps = append(s.steps, m)
	}
	return s
}

// gap returns a random change of the clock before a move: no change, a small one, one to the end of a window, up to
// three windows forward, or back.
func gap(r *rand.Rand, window int64) int64 {
	switch r.IntN(12) {
	case 0, 1, 2:
		return 0
	case 3:
		return 1 + r.Int64N(3)
	case 4:
		return window + r.Int64N(3) - 1
	case 5:
		return r.Int64N(3*window + 1)
	case 6:
		return -r.Int64N(window/4 + 1)
	case 7:
		if r.IntN(4) == 0 {
			return -r.Int64N(3*window + 1)
		}
	}
	return r.Int64N(window/4 + 1)
}

func randomLimit(r *rand.Rand, k kind) enforcement.Limit {
	l := enforcement.Limit{Name: "l1", Algorithm: k.algorithm, Anchor: k.anchor}
	windows := []time.Duration{
		time.Millisecond, 7 * time.Millisecond, time.Second, minute, 999_983 * time.Millisecond,
		time.Hour, 24 * time.Hour, 366 * 24 * time.Hour, time.Duration(1+r.IntN(100_000)) * time.Millisecond,
	}
	quotas := []int64{0, 1, 2, 3, 5, 7, 10, 10, 100, 1000, 700_000, 1_000_003, enforcement.MaxQuota, 1 + r.Int64N(20), 1 + r.Int64N(1_000_000)}
	l.Window = windows[r.IntN(len(windows))]
	if k.anchor == enforcement.ByCalendar {
		l.Period = enforcement.Day + enforcement.Period(r.IntN(int(enforcement.Year)))
		l.Window = l.Period.Longest()
	}
	l.Quota = quotas[r.IntN(len(quotas))]
	if k.rolls && r.IntN(5) > 0 {
		l.MaxRollover = min(max(quotas[r.IntN(len(quotas))]/int64(1+r.IntN(3)), 1), enforcement.MaxRollover)
	}
	if k == places {
		l.Quota = min(l.Quota, enforcement.MaxLeases)
	}
	if k != places {
		l.CarryOver = enforcement.CarryOver(r.IntN(4))
	}
	if k.algorithm.Bucket() && r.IntN(3) == 0 {
		l.Burst = quotas[1+r.IntN(len(quotas)-1)]
	}
	return l
}

func randomCost(r *rand.Rand, quota int64) int64 {
	costs := []int64{0, 1, 1, 1, 2, 3, quota / 3, quota / 2, quota, quota + 1, r.Int64N(2*quota + 1), r.Int64N(quota/4 + 1)}
	return min(costs[r.IntN(len(costs))], enforcement.MaxCost)
}

func (s *sequence) randomAsk(r *rand.Rand, limits []enforcement.Limit) ask {
	modes := []enforcement.Mode{
		enforce, enforce, enforce, enforce, enforce, enforce, enforce, enforce, enforce, enforce,
		peek, force, refund, takeUpTo, reset, release,
	}
	a := ask{mode: modes[r.IntN(len(modes))], follow: r.IntN(3) == 0, lease: byte(r.IntN(6))}
	if r.IntN(2) == 0 {
		a.ttl = 1 + r.Int64N(2*limits[0].Window.Microseconds())
	}
	if a.mode == reset && r.IntN(2) == 0 {
		a.mode = enforce
	}
	if a.calendar = s.calendar; s.calendar < 0 {
		a.calendar = r.IntN(5*len(sequenceCalendars)) - 4*len(sequenceCalendars)
		a.calendar = max(a.calendar, 0)
	}
	if r.IntN(5) == 0 {
		a.skew = r.Int64N(2*s.skew) - s.skew
	}
	if r.IntN(6) == 0 {
		a.key, a.what = byte(1+r.IntN(2)), byte(r.IntN(6)/5)
	}
	var group uint16
	used := map[[2]int]bool{}
	one := randomCost(r, limits[0].Quota)
	for range 1 + r.IntN(4) {
		if len(a.charges) > 0 && r.IntN(4) == 0 {
			group++
		}
		c := askCharge{limit: r.IntN(len(limits)), partition: byte(r.IntN(3) / 2), group: group}
		c.cost = randomCost(r, limits[c.limit].Quota+limits[c.limit].MaxRollover/2)
		if r.IntN(15) == 0 {
			c.back = 1 + r.Int64N(2)
		}
		// A node takes all charges of a request from one snapshot. Therefore charges on the same counter have the same
		// revision.
		for i := range a.charges {
			if a.charges[i].limit == c.limit {
				c.back = a.charges[i].back
			}
		}
		if a.mode == takeUpTo {
			if r.IntN(2) == 0 {
				c.cost = one
			}
			if used[[2]int{c.limit, int(c.partition)}] {
				continue
			}
			used[[2]int{c.limit, int(c.partition)}] = true
		}
		a.charges = append(a.charges, c)
	}
	return a
}

// maxSkew is the largest ask.skew: 100 days.
const maxSkew = 100 * 24 * 3_600_000_000

// sequenceCalendars are the calendars between which the tenant of a sequence changes.
var sequenceCalendars = func() (list []*enforcement.Calendar) {
	for _, name := range []struct {
		zone string
		day  int
	}{{"UTC", 1}, {"Europe/Berlin", 15}, {"America/Los_Angeles", 31}, {"Pacific/Kiritimati", 1}, {"Asia/Kolkata", 16}} {
		c, err := enforcement.NewCalendar(name.zone, name.day)
		if err != nil {
			panic(err)
		}
		list = append(list, c)
	}
	return list
}()

// A player plays one sequence with the limiter, the model and the reference.
type player struct {
	w         *harness
	limits    []*limited
	grants    []granted // sorted by their ends
	model     *model
	reference *reference
	records   map[enforcement.Key]record
	// ended counts, for each idempotency key of a sequence, how often its record has ended. If the clock steps back after
	// that, a limiter may or may not have deleted the record. Therefore another key is used after each end.
	ended [3]byte
	// changes is set if the calendar of the tenant changes.
	changes bool
}

// player returns a player for the sequence, with unused counters.
func (s *sequence) player(w *harness) *player {
	w.renew()
	p := &player{
		w: w, model: newModel(), reference: &reference{states: map[enforcement.Key]enforcement.State{}},
		records: map[enforcement.Key]record{}, changes: s.calendar < 0,
	}
	for _, l := range s.limits {
		p.limits = append(p.limits, newLimited(l))
	}
	p.grants = s.grants
	return p
}

// playOn plays the sequence on unused counters.
func (s *sequence) playOn(w *harness) error {
	p := s.player(w)
	for i := range s.steps {
		if err := p.move(&s.steps[i]); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, &s.steps[i], err)
		}
	}
	return nil
}

func (p *player) move(m *move) error {
	p.w.clock.Set(Start + m.at)
	p.end()
	if m.change >= 0 {
		p.limits[m.change].change(m.to, Start+m.at)
	}
	requests := make([]enforcement.Request, len(m.requests))
	for i := range m.requests {
		requests[i] = p.request(&m.requests[i])
	}
	outcomes, err := p.take(requests)
	if err != nil {
		return err
	}
	last := len(requests) - 1
	if m.requests[last].follow && requests[last].Mode == enforce && outcomes[last].Verdict == enforcement.Refused {
		return p.follow(requests[last], &outcomes[last])
	}
	return nil
}

func (p *player) request(a *ask) enforcement.Request {
	var charges []enforcement.Charge
	for _, c := range a.charges {
		l := p.limits[c.limit]
		m := l.at(max(l.now().Rev-c.back, 1)).In(sequenceCalendars[a.calendar], p.w.clock.Now()+a.skew)
		charges = append(charges, enforcement.Charge{
			Key: p.w.key(uint32(c.limit)+1, c.partition), Meter: m, Rev: m.Rev, Cost: c.cost, Group: c.group,
		})
		charges = p.addGrants(charges, a, &c)
	}
	r := p.w.request(a.mode, charges...)
	r.Lease = enforcement.Lease{ID: [16]byte{a.lease, 12: 1}, TTL: a.ttl}
	if a.key != 0 {
		r = p.w.idempotent(r, p.keyOf(a.key), a.what)
		r.Idempotency.Charges = hashOf(charges)
	}
	return r
}

// keyOf returns the idempotency key that stands for key.
func (p *player) keyOf(key byte) byte { return key + 2*p.ended[key] }

// end notes which records have ended.
func (p *player) end() {
	for key := byte(1); key < 3; key++ {
		stored, ok := p.records[p.w.key(enforcement.IdempotencyCell, p.keyOf(key))]
		if ok && p.w.clock.Now() >= stored.outcome.At+enforcement.IdempotencyPeriod.Microseconds() {
			p.ended[key]++
		}
	}
}

// hashOf returns a hash of charges and their numbers.
func hashOf(charges []enforcement.Charge) [16]byte {
	text := ""
	for i := range charges {
		c := &charges[i]
		text += fmt.Sprintln(c.Key, c.Meter.Numbers, c.Meter.Edges, c.Rev, c.Cost, c.Group)
	}
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:16])
}

// take passes requests to the limiter, the model and the reference, and compares the
// results.
func (p *player) take(requests []enforcement.Request) ([]enforcement.Outcome, error) {
	p.end()
	outcomes := make([]enforcement.Outcome, len(requests))
	p.w.limiter.Take(context.Background(), requests, outcomes)
	for i := range requests {
		if err := p.verify(&requests[i], &outcomes[i]); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	return outcomes, nil
}

// verify compares an outcome with the model and the reference, to which it also applies the request.
func (p *player) verify(r *enforcement.Request, o *enforcement.Outcome) error {
	if known, err := p.repeats(r, o); known || err != nil {
		return err
	}
	if _, err := p.decided(r, o); err != nil {
		return err
	}
	if r.Idempotent() && r.Mode != enforcement.Peek && o.Verdict == enforcement.Granted {
		p.records[r.Idempotency.Key] = record{*r.Idempotency, *o, r.ID}
	}
	return nil
}

// decided does the work of verify for a request that no record decides. It returns the answer of the model.
func (p *player) decided(r *enforcement.Request, o *enforcement.Outcome) (*answer, error) {
	now := p.w.clock.Now()
	modeled := p.model.Take(r, now)
	states := p.reference.take(r, &modeled, now)
	if err := check(r, o, now); err != nil {
		return nil, err
	}
	if o.Verdict != modeled.Verdict || o.Units != modeled.Units {
		return nil, fmt.Errorf("%s, %d units; the model says %s, %d", o.Verdict, o.Units, modeled.Verdict, modeled.Units)
	}
	for j := range r.Charges {
		if err := compare(r, o, j, &modeled.Charges[j], &states[j]); err != nil {
			return nil, fmt.Errorf("charge %d: %w", j, err)
		}
	}
	return &modeled, nil
}

// repeats reports whether the idempotency key of a request has a record. It returns an error if there is a record and
// the outcome differs from it, or if there is none and the outcome is a repetition.
func (p *player) repeats(r *enforcement.Request, o *enforcement.Outcome) (known bool, err error) {
	var want record
	if r.Idempotent() {
		want, known = p.records[r.Idempotency.Key]
		known = known && p.w.clock.Now() < want.outcome.At+enforcement.IdempotencyPeriod.Microseconds()
	}
	switch {
	case !known && (o.Replayed || o.Verdict == enforcement.Reused):
		return false, fmt.Errorf("replayed %t, verdict %s, but there is no record", o.Replayed, o.Verdict)
	case !known:
		return false, nil
	case want.Request == r.Idempotency.Request:
		return true, want.repeatedBy(r, o)
	case o.Verdict != enforcement.Reused || len(o.Charges) != 0:
		return true, fmt.Errorf("verdict %s for the key of another request", o.Verdict)
	}
	return true, nil
}

// repeatedBy returns an error unless the outcome o of the repetition r equals the outcome in the record.
func (want *record) repeatedBy(r *enforcement.Request, o *enforcement.Outcome) error {
	first := &want.outcome
	if o.Verdict != enforcement.Granted || !o.Replayed || o.First != want.first || o.At != first.At || o.Units != first.Units {
		return fmt.Errorf("verdict %s, replayed %t, at %d, %d units for a repetition; want granted, true, %d, %d",
			o.Verdict, o.Replayed, o.At, o.Units, first.At, first.Units)
	}
	charges := first.Charges
	if want.Charges != r.Idempotency.Charges {
		charges = nil
	}
	if len(o.Charges) != len(charges) {
		return fmt.Errorf("%d charges of a repetition, want %d", len(o.Charges), len(charges))
	}
	for i := range charges {
		got, want := o.Charges[i], charges[i]
		got.State.Holders, want.State.Holders = nil, nil
		if r.Charges[i].Grant { // its Cost is not set for a repetition
			got.Cost, want.Cost = 0, 0
		}
		if got.State.Log, want.State.Log = nil, nil; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("charge %d of a repetition: %+v, the first had %+v", i, got, want)
		}
	}
	return nil
}

// compare compares the result of the Limiter for one charge with the results of the model and the reference.
func compare(r *enforcement.Request, o *enforcement.Outcome, j int, want *answered, state *enforcement.State) error {
	c, got := &r.Charges[j], &o.Charges[j]
	if got.Cost != want.Cost || got.Fits != want.Fits {
		return fmt.Errorf("cost %d, fits %t; the model says %d, %t", got.Cost, got.Fits, want.Cost, want.Fits)
	}
	if err := same(&got.State, state); err != nil {
		return err
	}
	if left := c.Meter.Remaining(got.State, o.At); left != want.Remaining {
		return fmt.Errorf("%d remaining, the model says %d", left, want.Remaining)
	}
	if err := want.checkDelay(r, o, j); err != nil || c.Grant {
		return err // a grant does not begin again, so it has no reset and retry times
	}
	if got.Fits && o.At%4 != 0 {
		return nil // checkTimes is slow, so it checks only a quarter of the charges that fit
	}
	retryAfter, possible := c.Meter.RetryAfterFor(got.State, o.At, got.Cost, &r.Lease)
	resetAfter := c.Meter.ResetAfter(got.State, o.At)
	return want.counter.checkTimes(c.Meter, c.Rev, o.At, got.Cost, resetAfter, retryAfter, possible, r.Lease.ID)
}

// follow checks the retry time of a denied request, rounded up to a millisecond. A Peek
// of the request must be granted at that time, and denied a millisecond before.
func (p *player) follow(r enforcement.Request, o *enforcement.Outcome) error {
	var longest int64
	for i := range r.Charges {
		c, got := &r.Charges[i], &o.Charges[i]
		if c.Meter.Algorithm == enforcement.Concurrency && got.Fits {
			return nil // it may fit only as long as the lease of the request has not ended
		}
		if c.Meter.Rollover > 0 && p.rollsInexactly(&r, c, got, o.At) {
			return nil
		}
		if c.Group != 0 || got.Fits {
			continue
		}
		if c.Rev < got.State.Rev {
			return nil // for a caller with old numbers, the retry time is not exact
		}
		if slices.ContainsFunc(c.Meter.Formers, func(f enforcement.Former) bool { return o.At < f.Until }) {
			return nil // the clock stepped back before a change of numbers, so a former rate is in force
		}
		micros, ok := c.Meter.RetryAfterFor(got.State, o.At, got.Cost, &r.Lease)
		if n := grantsOf(r.Charges, i); n > 0 {
			if r.Mode != enforcement.Enforce || got.Cost != c.Cost || p.shareGrants(&r) {
				return nil // other charges of the request spend the same grants
			}
			micros, ok = enforcement.RetryWithGrants(r.Charges[i:i+n+1], o.Charges[i:i+n+1], o.At, 0, got.Cost)
		}
		if !ok || micros >= 1<<50 {
			return nil
		}
		longest = max(longest, (micros+999)/1000*1000)
	}
	enforced := slices.IndexFunc(r.Charges, func(c enforcement.Charge) bool { return c.Group != 0 })
	if enforced < 0 {
		enforced = len(r.Charges)
	}
	if p.shareGrants(&r) {
		return nil
	}
	longest, ok := enforcement.RetryOfAll(r.Charges[:enforced], o.Charges[:enforced], o.At, longest)
	if !ok {
		return nil
	}
	return p.peekAround(r, o.At, longest)
}

// peekAround makes two peeks of a request that was denied at the time at. After the retry time longest, the peek must be
// granted. A millisecond before, it must be denied.
func (p *player) peekAround(r enforcement.Request, at, longest int64) error {
	r.Mode = enforcement.Peek
	for _, try := range []struct {
		at   int64
		want enforcement.Verdict
	}{{at + longest - 1000, enforcement.Refused}, {at + longest, enforcement.Granted}} {
		p.w.clock.Set(try.at)
		for i := range r.Charges {
			r.Charges[i].Meter = nextMeter(r.Charges[i].Meter, try.at)
		}
		outcomes, err := p.take([]enforcement.Request{r})
		if err != nil {
			return fmt.Errorf("following the retry time of %d µs: %w", longest, err)
		}
		if outcomes[0].Verdict != try.want {
			return fmt.Errorf("%d µs after a denial with a retry time of %d µs: %s", try.at-at, longest, outcomes[0].Verdict)
		}
	}
	p.w.clock.Set(at)
	return nil
}

// rollsInexactly reports whether the retry time of a charge may be inexact, on a limit that rolls units over. This is so
// if the clock stepped back before the window, or if the cost only fits while units are rolled over. In the second case,
// another charge may deny for longer; and after a change of the calendar, the number of windows without a charge is
// inexact.
func (p *player) rollsInexactly(r *enforcement.Request, c *enforcement.Charge, got *enforcement.Charged, at int64) bool {
	return got.State.T > at || got.Cost > c.Meter.Quota && (len(r.Charges) > 1 || p.changes)
}

// shrink returns the shortest sequence that it finds and that still fails.
func (s *sequence) shrink(w *harness) *sequence {
	short := &sequence{limits: s.limits, calendar: s.calendar, grants: s.grants, steps: slices.Clone(s.steps)}
	for size := len(short.steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(short.steps); {
			steps := slices.Delete(slices.Clone(short.steps), from, from+size)
			without := &sequence{limits: s.limits, calendar: s.calendar, grants: s.grants, steps: steps}
			if without.playOn(w) != nil {
				short = without
			} else {
				from += size
			}
		}
	}
	return short
}

// String returns the limits and moves as text.
func (s *sequence) String() string {
	var b strings.Builder
	for i, l := range s.limits {
		fmt.Fprintf(&b, "limit %d: %s\n", i, describe(l))
	}
	for i, g := range s.grants {
		fmt.Fprintf(&b, "grant %d: %d units of limit %d, partition %d, from %dµs to %dµs\n", i, g.units, g.limit, g.partition, g.from, g.until)
	}
	for i := range s.steps {
		fmt.Fprintf(&b, "step %d: %s\n", i, &s.steps[i])
	}
	return b.String()
}

func describe(l enforcement.Limit) string {
	return fmt.Sprintf("%s %d per %s, burst %d, %s, rollover %d", l.Algorithm, l.Quota, l.Window, l.Burst, l.Anchor, l.MaxRollover)
}

// String returns the move as text.
func (m *move) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %dµs", m.at)
	if m.change >= 0 {
		fmt.Fprintf(&b, ", limit %d becomes %s", m.change, describe(m.to))
	}
	for i := range m.requests {
		a := &m.requests[i]
		fmt.Fprintf(&b, "; %s (calendar %d, skew %d, key %d, what %d, lease %d, ttl %d)",
			a.mode, a.calendar, a.skew, a.key, a.what, a.lease, a.ttl)
		for _, c := range a.charges {
			fmt.Fprintf(&b, " [limit %d partition %d group %d cost %d", c.limit, c.partition, c.group, c.cost)
			if c.back > 0 {
				fmt.Fprintf(&b, " at the revision before")
			}
			b.WriteString("]")
		}
	}
	return b.String()
}
