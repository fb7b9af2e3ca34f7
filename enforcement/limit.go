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

// An Algorithm counts a limit. DESIGN: docs/algorithms.md has each with a
// picture; algorithm.go has them as integer functions.
type Algorithm uint8

// The algorithms. TokenBucket and GCRA are one code with two names; a change
// from one name to the other is a change of algorithm all the same.
const (
	FixedWindow Algorithm = iota + 1
	SlidingWindowLog
	SlidingWindowCounter
	TokenBucket
	GCRA
)

var algorithmNames = [...]string{"", "fixed_window", "sliding_window_log", "sliding_window_counter", "token_bucket", "gcra"}

// String gives the name on the wire.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// ParseAlgorithm knows the names on the wire.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for i, n := range algorithmNames {
		if i > 0 && n == name {
			return Algorithm(i), true
		}
	}
	return 0, false
}

// Bucket reports whether the algorithm refills instead of rolling windows.
func (a Algorithm) Bucket() bool { return a == TokenBucket || a == GCRA }

// Windowed reports whether the algorithm has an anchor.
func (a Algorithm) Windowed() bool { return a == FixedWindow || a == SlidingWindowCounter }

// An Anchor says where windows begin.
type Anchor uint8

// The anchors: at the first charge, or at multiples of the window since the epoch.
const (
	FirstHit Anchor = iota
	Clock
)

// String gives the name on the wire.
func (a Anchor) String() string {
	if a == Clock {
		return "clock"
	}
	return "first_hit"
}

// ParseAnchor knows the names on the wire.
func ParseAnchor(name string) (Anchor, bool) {
	switch name {
	case "first_hit":
		return FirstHit, true
	case "clock":
		return Clock, true
	}
	return 0, false
}

// Bounds of what a limit may be. Within them every sum and product of the
// algorithms is exact, here and in Lua.
const (
	MaxQuota     = 1_000_000_000_000 // also the largest burst
	MaxWindow    = 366 * 24 * time.Hour
	MinWindow    = time.Millisecond
	MaxCost      = 1<<31 - 1
	maxLimitName = 32                    // bytes
	MaxLog       = 10_000                // entries a log may hold
	maxCount     = 1_000_000_000_000_000 // where a forced count stops
	maxForever   = 1 << 53               // where a retry time stops, in microseconds: 285 years
)

// A Limit is how much, of a policy: what an administrator writes.
type Limit struct {
	Name      string        // unique in its policy
	Algorithm Algorithm     //
	Quota     int64         // units a window, 0 to MaxQuota; 0 refuses everything
	Window    time.Duration // MinWindow to MaxWindow, whole milliseconds
	Burst     int64         // buckets: the capacity, 1 to MaxQuota; 0: as Quota
	Anchor    Anchor        // windows and sliding counters
}

// Validate returns all faults of the limit. It is the one place that says which
// limits are valid: plans, overrides, snapshots and scenarios call it. The
// pointers are relative to the limit: "/quota".
func (l Limit) Validate() problem.Fields {
	var f problem.Fields
	if l.Name == "" || len(l.Name) > maxLimitName || strings.Trim(l.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		f.Add("/name", "must be 1 to %d lower-case letters, digits and hyphens", maxLimitName)
	}
	known := l.Algorithm >= FixedWindow && l.Algorithm <= GCRA
	if !known {
		f.Add("/algorithm", "%s", algorithmFault(""))
	}
	if l.Quota < 0 || l.Quota > MaxQuota {
		f.Add("/quota", "must be 0 to %d", int64(MaxQuota))
	} else if l.Algorithm == SlidingWindowLog && l.Quota > MaxLog {
		f.Add("/quota", "must be 0 to %d: a sliding_window_log stores every request; use sliding_window_counter for more", MaxLog)
	}
	if known && l.Burst != 0 && !l.Algorithm.Bucket() {
		f.Add("/burst", burstMisplaced)
	} else if l.Burst < 0 || l.Burst > MaxQuota {
		f.Add("/burst", burstRange)
	}
	if l.Window < MinWindow || l.Window > MaxWindow {
		f.Add("/window", "must be from %s to %s", FormatWindow(MinWindow), FormatWindow(MaxWindow))
	} else if exact, err := ParseWindow(FormatWindow(l.Window)); err != nil || exact != l.Window {
		f.Add("/window", "must be a whole number of ms, s, m, h or d, of at most ten digits")
	}
	if known && l.Anchor != FirstHit && !l.Algorithm.Windowed() {
		f.Add("/anchor", anchorMisplaced)
	} else if l.Anchor > Clock {
		f.Add("/anchor", anchorUnknown)
	}
	return f
}

const (
	burstMisplaced  = "only token_bucket and gcra have a burst"
	burstRange      = "must be 1 to 1000000000000; without it, the burst is the quota"
	anchorMisplaced = "only fixed_window and sliding_window_counter have an anchor"
	anchorUnknown   = "must be first_hit or clock"
)

// algorithmFault returns the message for an unknown algorithm.
func algorithmFault(name string) string {
	const known = "must be fixed_window, sliding_window_log, sliding_window_counter, token_bucket or gcra"
	if name == "leaky_bucket" || name == "concurrency" {
		return name + " is not supported yet: " + known
	}
	return known
}

// ValidateLimits returns all faults of limits that belong together, including
// names that occur twice. The pointers are relative to the list: "/0/quota".
func ValidateLimits(limits []Limit) problem.Fields {
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

// Numbers are what may change of a limit while it stays the same counter, in
// the form in which the arithmetic reads them.
type Numbers struct {
	Quota    int64 // units a window
	Window   int64 // microseconds
	Capacity int64 // buckets: units
	P, Q     int64 // buckets: the rate is P/Q units a microsecond, reduced
}

// A Former is the numbers that a meter had before. State of a bucket that was
// written under them flows at their rate up to Until.
type Former struct {
	Numbers
	Rev   int64 // from which control-plane revision they held
	Until int64 // to which instant, microseconds since the epoch
}

// A Meter is a Limit compiled for speed. It is immutable and shared by all
// requests.
type Meter struct {
	Numbers
	Algorithm Algorithm
	Anchor    Anchor
	// Rev is the control-plane revision at which the numbers last changed.
	Rev int64
	// Formers are the numbers before, oldest first. A few are enough: state
	// older than them flows at the oldest one's rate.
	Formers []Former
}

// Compile makes the meter of a limit whose numbers hold since revision rev.
// The limit must be within the bounds above.
func (l Limit) Compile(rev int64) *Meter {
	return &Meter{Numbers: l.Numbers(), Algorithm: l.Algorithm, Anchor: l.Anchor, Rev: rev}
}

// Capacity returns the most units that can be charged at once: the burst of a
// bucket, or the quota.
func (l Limit) Capacity() int64 {
	if l.Algorithm.Bucket() && l.Burst != 0 {
		return l.Burst
	}
	return l.Quota
}

// Numbers gives the limit's numbers in the form of the arithmetic.
func (l Limit) Numbers() Numbers {
	n := Numbers{Quota: l.Quota, Window: l.Window.Microseconds()}
	if l.Algorithm.Bucket() {
		n.Capacity = l.Capacity()
		g := gcd(n.Quota, n.Window)
		n.P, n.Q = n.Quota/g, n.Window/g
	}
	return n
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}

// mulAddDiv is floor((a*b + c) / m) and the remainder, for a, b, c >= 0 and
// m > 0, in 128 bits. ok is false when the quotient does not fit 63 bits.
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
