package enforcement

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// An Algorithm is the way in which a limit counts, for example token_bucket.
// docs/algorithms.md describes the algorithms with pictures. algorithm.go implements
// them as integer functions.
type Algorithm uint8

// The algorithms. TokenBucket and GCRA are two names of one implementation, and share their
// counters; see CountsAs.
const (
	FixedWindow Algorithm = iota + 1
	SlidingWindowLog
	SlidingWindowCounter
	TokenBucket
	GCRA
	Concurrency
	LeakyBucket
)

var algorithmNames = [...]string{
	"", "fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket", "gcra", "concurrency", "leaky_bucket",
}

// String returns the name of the algorithm in the API, for example fixed_window.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// ParseAlgorithm returns the algorithm that has this name in the API. It returns false if there is
// none.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for i, n := range algorithmNames {
		if i > 0 && n == name {
			return Algorithm(i), true
		}
	}
	return 0, false
}

// CountsAs returns the algorithm that identifies the counters of a limit: TokenBucket for GCRA, and a
// for all others. A change between two algorithms with the same result keeps the counters.
func (a Algorithm) CountsAs() Algorithm {
	if a == GCRA {
		return TokenBucket
	}
	return a
}

// Bucket reports whether the algorithm is a bucket that refills or drains, in contrast to
// a window.
func (a Algorithm) Bucket() bool { return a == TokenBucket || a == GCRA || a == LeakyBucket }

// Windowed reports whether the algorithm counts in windows. An Anchor determines where such windows
// begin.
func (a Algorithm) Windowed() bool { return a == FixedWindow || a == SlidingWindowCounter }

// An Anchor determines when windows begin.
type Anchor uint8

// The anchors. With FirstHit, a window begins at the first charge. With Clock, windows
// begin at multiples of their length since the epoch. The other anchors are for calendar
// windows: with ByCalendar, a window begins on the first day of the period in the calendar
// of the tenant, and with a weekday, a week begins on that day.
const (
	FirstHit Anchor = iota
	Clock
	ByCalendar
	Monday
	Tuesday
	Wednesday
	Thursday
	Friday
	Saturday
	Sunday
)

var anchorNames = [...]string{
	"first_hit", "clock", "calendar", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
}

// String returns the name of the anchor in the API.
func (a Anchor) String() string {
	if int(a) < len(anchorNames) {
		return anchorNames[a]
	}
	return fmt.Sprintf("anchor %d", uint8(a))
}

// Weekday reports whether the anchor is the first day of a week.
func (a Anchor) Weekday() bool { return a >= Monday && a <= Sunday }

// weekday returns the day on which a week with the anchor begins.
func (a Anchor) weekday() time.Weekday {
	if !a.Weekday() {
		return time.Monday
	}
	return time.Weekday(a-Monday+1) % 7
}

// DefaultAnchor returns the anchor that a limit with this period has if it does not name one.
func (p Period) DefaultAnchor() Anchor {
	switch p {
	case NoPeriod:
		return FirstHit
	case Week:
		return Monday
	}
	return ByCalendar
}

// ParseAnchor returns the anchor that has this name in the API. It returns false if there is none.
func ParseAnchor(name string) (Anchor, bool) {
	for i, n := range anchorNames {
		if n == name {
			return Anchor(i), true
		}
	}
	return 0, false
}

// Bounds of a valid limit. Within them, all sums and products of the algorithms are
// exact, in Go and in Lua.
const (
	MaxQuota     = 1_000_000_000_000 // the largest quota, and the largest burst
	MaxWindow    = 366 * 24 * time.Hour
	MinWindow    = time.Millisecond
	MaxCost      = 1<<31 - 1
	maxLimitName = 32                    // bytes
	MaxLog       = 10_000                // largest number of entries of a sliding_window_log
	maxCount     = 1_000_000_000_000_000 // largest count of a window after forced charges
	maxForever   = 1 << 53               // longest RetryAfter and ResetAfter, in microseconds: 285 years
)

// A Limit is one limit of a policy, in the form in which an administrator enters it.
type Limit struct {
	Name      string // unique in its policy
	Algorithm Algorithm
	Quota     int64         // units per window, 0 to MaxQuota; 0 denies every request
	Window    time.Duration // MinWindow to MaxWindow, whole milliseconds; for a calendar window, Period.Longest
	Period    Period        // day, month and so on for a calendar window; only fixed windows can have one
	Burst     int64         // only for a bucket: the capacity, 1 to MaxQuota; 0 stands for Quota
	Anchor    Anchor        // only for fixed windows and sliding counters
	WarnAt    WarnAt        // percentages of the capacity; they decide nothing
	// Durability determines whether counters survive the loss of the limiter's data.
	Durability Durability
	// CarryOver determines what happens to the counters when the quota, the window or the burst
	// changes.
	CarryOver CarryOver
	// MaxRollover is the largest number of units that are rolled over when a calendar window ends:
	// units that are left move to the next window. It is at most the constant MaxRollover; 0 means
	// that nothing is rolled over.
	MaxRollover int64
}

// Validate returns all errors of the limit. Plans, overrides, snapshots and scenarios
// use it, so that there is only one definition of a valid limit. The JSON pointers in
// the errors are relative to the limit, for example "/quota".
func (l Limit) Validate() problem.Fields {
	var f problem.Fields
	if l.Name == "" || len(l.Name) > maxLimitName || strings.Trim(l.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		f.Add("/name", "must be 1 to %d lower-case letters, digits and hyphens", maxLimitName)
	}
	known := l.Algorithm >= FixedWindow && l.Algorithm <= LeakyBucket
	if !known {
		f.Add("/algorithm", algorithmFault)
	}
	switch {
	case l.Quota < 0 || l.Quota > MaxQuota:
		f.Add("/quota", "must be 0 to %d", int64(MaxQuota))
	case l.Algorithm == SlidingWindowLog && l.Quota > MaxLog:
		f.Add("/quota", "must be 0 to %d: a sliding_window_log stores every request; use sliding_window_counter for more", MaxLog)
	case l.Algorithm == Concurrency && l.Quota > MaxLeases:
		f.Add("/quota", "must be 0 to %d: a concurrency limit stores every lease; use count_by to have more places", MaxLeases)
	}
	l.validateBurst(&f, known)
	if l.Period != NoPeriod {
		l.validatePeriod(&f, known)
	} else if l.Window < MinWindow || l.Window > MaxWindow {
		f.Add("/window", "must be from %s to %s", FormatWindow(MinWindow), FormatWindow(MaxWindow))
	} else if exact, err := ParseWindow(FormatWindow(l.Window)); err != nil || exact != l.Window {
		f.Add("/window", "must be a whole number of ms, s, m, h or d, of at most ten digits")
	}
	l.validateAnchor(&f, known)
	if !l.WarnAt.valid() {
		f.Add("/warn_at", "must be percentages from 1 to 100 in ascending order")
	}
	f.AddAll("", l.validateDurability())
	f.AddAll("", l.validateCarryOver())
	f.AddAll("", l.validateRollover())
	return f
}

// validateBurst adds the errors of the burst. known is false if the algorithm is unknown. In this
// case, validateBurst accepts a burst for any limit.
func (l Limit) validateBurst(f *problem.Fields, known bool) {
	if known && l.Burst != 0 && !l.Algorithm.Bucket() {
		f.Add("/burst", burstMisplaced)
	} else if l.Burst < 0 || l.Burst > MaxQuota {
		f.Add("/burst", burstRange)
	}
}

// validateAnchor adds the errors of the anchor. known is false if the algorithm is unknown. In this
// case, validateAnchor accepts an anchor for any limit.
func (l Limit) validateAnchor(f *problem.Fields, known bool) {
	if known && !l.Algorithm.Windowed() && l.Anchor != l.Period.DefaultAnchor() {
		f.Add("/anchor", anchorMisplaced)
	} else if l.Anchor > Sunday {
		f.Add("/anchor", anchorUnknown)
	} else if l.Period == NoPeriod && l.Anchor > Clock {
		f.Add("/anchor", anchorOfCalendar)
	} else if l.Period == Week && !l.Anchor.Weekday() {
		f.Add("/anchor", anchorOfWeek)
	} else if l.Period != NoPeriod && l.Period != Week && l.Anchor != ByCalendar {
		f.Add("/anchor", "must be calendar, or left out, for a window of a %s", l.Period)
	}
}

// validatePeriod adds the errors of a calendar window.
func (l Limit) validatePeriod(f *problem.Fields, known bool) {
	switch {
	case known && l.Algorithm != FixedWindow:
		f.Add("/window", "only fixed_window has calendar windows: with %s, use a length like 30d", l.Algorithm)
	case l.Period > Year || l.Window != l.Period.Longest():
		f.Add("/window", "must be that of the plan, because it is a calendar window")
	}
}

const (
	burstMisplaced  = "only token_bucket, gcra and leaky_bucket have a burst"
	burstRange      = "must be 1 to 1000000000000; without it, the burst is the quota"
	anchorMisplaced = "only fixed_window and sliding_window_counter have an anchor"
	anchorUnknown   = "must be first_hit or clock, or, for a window of a week, monday to sunday"

	anchorOfCalendar = "must be first_hit or clock"
	anchorOfWeek     = "must be the first day of the week, monday to sunday"
)

// algorithmFault is the error message for an algorithm with an unknown name.
const algorithmFault = "must be fixed_window, sliding_window_log, sliding_window_counter, token_bucket, gcra, leaky_bucket or concurrency"

// validateLimits returns all errors of the limits of one policy, including names that
// occur twice. The JSON pointers in the errors are relative to the list, for example
// "/0/quota".
func validateLimits(limits []Limit) problem.Fields {
	var f problem.Fields
	for i, l := range limits {
		at := "/" + strconv.Itoa(i)
		if first := slices.IndexFunc(limits, func(o Limit) bool { return o.Name == l.Name }); first < i {
			f.Add(at+"/name", "limit %d has the same name", first)
		}
		f.AddAll(at, l.Validate())
	}
	return f
}

// Numbers are the quota, the window and the burst of a limit, in the form that the
// algorithms use. After a change of Numbers, Limit.CarryOver determines what counters
// keep; a change of the algorithm, the count_by or the anchor starts new counters.
type Numbers struct {
	Quota    int64 // units per window
	Window   int64 // microseconds
	Capacity int64 // for a bucket, the largest A of its State; 0 for a leaky bucket
	P, Q     int64 // a bucket refills P/Q units per microsecond; the fraction is reduced
	// Queue is the burst of a leaky bucket, and 0 for other algorithms. State.A of a leaky bucket is 0
	// if no units wait, and -Queue if the queue is full. So a change of the burst does not change
	// State.A, and requests in the queue wait as long as before.
	Queue int64
}

// A Former has Numbers that a meter had before its present ones. If a bucket was stored with these
// Numbers, it refills at their rate until the time Until.
type Former struct {
	Numbers
	Rev   int64 // the control-plane revision at which the Numbers came into force
	Until int64 // the time at which they ended, in microseconds since the epoch
	// CarryOver determines how counters are carried over to the next Numbers.
	CarryOver CarryOver
}

// A Meter is a Limit in the form that the algorithms use. It is immutable, and all
// requests share it.
type Meter struct {
	Numbers
	Algorithm Algorithm
	Anchor    Anchor
	// Period is the period of a calendar window, or NoPeriod. Edges are the times at which
	// windows of this period begin in Calendar. The method In sets Edges and Calendar.
	Period   Period
	Edges    Edges
	Calendar *Calendar
	// Rollover is Limit.MaxRollover.
	Rollover int64
	// Rev is the control-plane revision at which Numbers last changed.
	Rev int64
	// Durable says that the limit is durable: a Journal stores the states of its counters in
	// the database.
	Durable bool
	// Formers has the former Numbers, oldest first. The list may be incomplete. A bucket
	// that was stored before the oldest entry refills at the rate of this entry.
	Formers []Former

	calendars *calendarMeters // meters for other calendars; set for a calendar window
}

// Compile returns the meter of a valid limit whose Numbers came into force at revision
// rev.
func (l Limit) Compile(rev int64) *Meter {
	m := &Meter{Numbers: l.Numbers(), Algorithm: l.Algorithm, Anchor: l.Anchor, Period: l.Period, Rev: rev, Durable: l.IsDurable()}
	if m.Period != NoPeriod {
		m.calendars, m.Calendar, m.Rollover = &calendarMeters{}, utcCalendar, l.MaxRollover
		m.Edges, _, _ = utcCalendar.edgesAt(m.Period, m.Anchor.weekday(), 0)
	}
	return m
}

// Capacity returns the largest cost that the limit can ever allow at once: the burst of a bucket, or
// the quota.
func (l Limit) Capacity() int64 {
	if l.Algorithm.Bucket() && l.Burst != 0 {
		return l.Burst
	}
	return l.Quota
}

// Numbers returns the quota, the window and the burst in the form that the algorithms
// use.
func (l Limit) Numbers() Numbers {
	n := Numbers{Quota: l.Quota, Window: l.Window.Microseconds()}
	if l.Algorithm.Bucket() {
		n.Capacity = l.Capacity()
		if l.Algorithm == LeakyBucket {
			n.Capacity, n.Queue = 0, l.Capacity()
		}
		g := gcd(n.Quota, n.Window)
		n.P, n.Q = n.Quota/g, n.Window/g
	}
	return n
}

// Burst returns the largest number of units that a bucket can allow at once.
func (n *Numbers) Burst() int64 { return n.Capacity + n.Queue }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}

// mulAddDiv returns floor((a*b + c) / m) and the remainder, for a, b, c >= 0 and m > 0. Intermediate
// results have 128 bits. ok is false if the quotient does not fit into 63 bits.
func mulAddDiv(a, b, c, m int64) (quo, rem int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c), 0)
	hi += carry
	if hi >= uint64(m) {
		return 0, 0, false
	}
	q, r := bits.Div64(hi, lo, uint64(m))
	if q > 1<<63-1 {
		return 0, 0, false
	}
	return int64(q), int64(r), true
}
