package preview

import (
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// A replay begins at some time with counters whose state it cannot tell. So it first follows the trace: it
// charges the counters with what was allowed, until they depend only on traced requests. For a log, that is one
// window, even if its key is never idle. Then the draft decides, with the counters of the published version, as
// at a publication: a limit with another algorithm starts new counters, and others keep theirs.
//
// The draft may as well have been in force before. Then its counters have other requests, but at most as many as
// their capacity, so that many more or fewer requests are denied.

// A keyState is the state of one key on one side of a replay.
type keyState struct {
	hash       uint64
	generation int    // increased to begin new counters
	text       string // identifies the counters
	ready      int64  // time from which precise counters contain only traced requests
	last       int64  // time of the last request
	over       int64  // cost of the last request if its policy did not allow it, otherwise 0
	weight     int64  // cost of the last request, below 0 if it was forced
	costs      bool   // set if a request was forced or had another cost than 1
	known      keyKnown
	// left is set while the key is left out, because the replay decided one of its requests otherwise
	// than it was decided.
	left bool
}

// keyKnown is what is known of the counters of a key.
type keyKnown uint8

const (
	keyUnknown keyKnown = iota
	keyBounded          // earlier requests change the number of denials by at most keyRules.slack
	keySettled          // all
)

// renew begins new counters for the key.
func (k *keyState) renew() {
	k.generation++
	k.text = strconv.FormatUint(k.hash, 16) + "/" + strconv.Itoa(k.generation)
}

// keyRules say when the state of the keys of a policy is known on one side.
type keyRules struct {
	idle int64 // a key without requests for this time, in microseconds, has new counters
	// fresh is set if the draft starts new counters. Then they are not charged before it decides.
	fresh bool
	// precise is set if the counters depend only on the requests since keyState.ready.
	precise bool
	// firstHit is set if the only published limit has windows that begin with their first request. One
	// begins when a request is allowed after one was not.
	firstHit bool
	// burst is the capacity if the only published limit is a bucket, otherwise 0. When a request is not
	// allowed, the bucket has less than its cost.
	burst int64
	// slack is by how much the number of denials of the draft depends on earlier requests, if each costs 1.
	// It is 0 if that is not known.
	slack int64
}

// rulesOfPublished returns the rules for a policy on the side of the published version.
func rulesOfPublished(p *plans.Policy) keyRules {
	k := keyRules{idle: idleTime(p), precise: true}
	for _, l := range p.Limits {
		k.precise = k.precise && (byClock(l) || l.Algorithm == enforcement.SlidingWindowLog)
	}
	if l := p.Limits[0]; len(p.Limits) == 1 {
		k.firstHit = l.Algorithm == enforcement.FixedWindow && !byClock(l)
		if l.Algorithm.Bucket() {
			k.burst = l.Capacity()
		}
	}
	return k
}

// byClock reports whether each window of a limit begins at a time that does not depend on requests.
func byClock(l enforcement.Limit) bool {
	return l.Period != enforcement.NoPeriod || l.Algorithm.Windowed() && l.Anchor == enforcement.Clock
}

// rulesOfDraft returns the rules for a policy of the draft. published is the published policy whose traced
// requests are those of p, or nil.
func rulesOfDraft(p, published *plans.Policy) keyRules {
	k := keyRules{idle: idleTime(p), fresh: true}
	if published != nil && limits(published) && sharesCounters(p, published) {
		k = rulesOfPublished(published)
		k.idle = max(k.idle, idleTime(p))
		for _, l := range published.Limits {
			k.slack = max(k.slack, l.Capacity())
		}
	}
	k.precise = !slices.ContainsFunc(p.Limits, func(l enforcement.Limit) bool { return !byClock(l) })
	for _, l := range p.Limits {
		k.slack = max(k.slack, l.Capacity())
	}
	// The limits of these algorithms say how many requests each span of time has at most. So if a limiter
	// admits each request that fits, it admits as many as it can, less those for which earlier ones took the room.
	if slices.ContainsFunc(p.Limits, func(l enforcement.Limit) bool {
		return l.Algorithm != enforcement.SlidingWindowLog && !l.Algorithm.Bucket() && (l.Algorithm != enforcement.FixedWindow || !byClock(l))
	}) {
		k.slack = 0
	}
	return k
}

func idleTime(p *plans.Policy) int64 { return int64(warmUp(p.Limits)) * time.Minute.Microseconds() }

// sameCounters reports whether two limits of policies with the same slug and count_by have the same counters.
func sameCounters(a, b enforcement.Limit) bool {
	return a.Name == b.Name && a.Algorithm.CountsAs() == b.Algorithm.CountsAs() && a.Anchor == b.Anchor && a.Period == b.Period
}

// sharesCounters reports whether a limit of p keeps the counters of a limit of published.
func sharesCounters(p, published *plans.Policy) bool {
	return p.Slug == published.Slug && slices.ContainsFunc(p.Limits, func(l enforcement.Limit) bool {
		return slices.ContainsFunc(published.Limits, func(o enforcement.Limit) bool {
			return sameCounters(l, o) && (l.CarryOver != enforcement.CarryReset || l.Numbers() == o.Numbers())
		})
	})
}

// readyFrom returns the time from which on the counters of the limits depend only on requests since start.
func readyFrom(limits []enforcement.Limit, start time.Time, calendar *enforcement.Calendar) time.Time {
	ready := start
	for _, l := range limits {
		at := start
		switch {
		case l.Period != enforcement.NoPeriod:
			at = calendarEnd(l, at.Add(-time.Microsecond), calendar)
			if l.MaxRollover > 0 { // a window has what the one before left
				at = calendarEnd(l, at, calendar)
			}
		case l.Algorithm.Windowed() && l.Anchor == enforcement.Clock:
			if past := time.Duration(start.UnixNano() % l.Window.Nanoseconds()); past > 0 {
				at = start.Add(l.Window - past)
			}
			if l.Algorithm == enforcement.SlidingWindowCounter {
				at = at.Add(l.Window)
			}
		default:
			at = start.Add(time.Duration(warmUp([]enforcement.Limit{l})) * time.Minute)
		}
		ready = maxTime(ready, at)
	}
	return ready
}

// calendarEnd returns the end of the calendar window that contains the instant at.
func calendarEnd(l enforcement.Limit, at time.Time, calendar *enforcement.Calendar) time.Time {
	now := at.UnixMicro()
	m := l.Compile(1).In(calendar, now)
	used, _ := m.Settle(enforcement.State{}, 1, now)
	used = m.Charge(used, 1, now, 1)
	return time.UnixMicro(now + m.ResetAfter(used, now)).UTC()
}

// see notes that a request of the key came at the time at, before the request is decided.
func (k *keyState) see(at int64, rules *keyRules) {
	switch {
	case k.known == keySettled:
	case at-k.last >= rules.idle:
		k.renew()
		k.known = keySettled
	case rules.precise && at >= k.ready:
		k.known = keySettled
	}
	k.left = k.left && k.known != keySettled
	k.last = at
}

// restart begins new counters at the time at, of which nothing is known until the time ready.
func (k *keyState) restart(at, ready int64) {
	k.renew()
	k.known, k.last, k.ready, k.over = keyUnknown, at, ready, 0
}
