package limitertest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
)

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
