package enforcement

import (
	"slices"
	"sync/atomic"
	"time"
)

// A SentLimit is a limit that the caller of a check sends: Quota units in each Window. It replaces the limits of the most
// specific enforced policy that applies. If an override of the tenant is in force for this policy, it replaces nothing.
// The zero SentLimit also replaces nothing.
//
// A SentLimit is a fixed window that begins at multiples of its length since the epoch. It counts by the count_by of the
// policy that it replaces. It has its own counter for each length of a window, so it never changes a counter of the plan.
// Checks with different quotas and the same window share a counter.
type SentLimit struct {
	Quota  int64
	Window time.Duration // one of SentWindows
}

// SentWindows are the possible windows of sent limits. The index of a window is part of the keys of its counters.
var SentWindows = [...]time.Duration{
	time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour,
}

const (
	// maxCell is the largest Key.Cell of a limit of a plan.
	maxCell = 1<<sentShift - 1
	// sentCell is a bit that is set in the Key.Cell of a sent limit. The bits below sentShift are the cell of the policy's
	// first limit. The bits between them and sentCell are the index of the window in SentWindows.
	sentCell  = 1 << 31
	sentShift = 28
)

// mostSent is the maximum number of compiled sent limits that the cache of a rule has.
const mostSent = 64

// A sentLimits caches the compiled sent limits of a rule. The same limit always gets the same
// Meter, because limiters compare pointers to meters.
type sentLimits struct {
	made atomic.Pointer[[]*override]
}

// sent returns the compiled form of a limit that the caller sent. The sent limit replaces the limits of the rule. The
// rule must have at least one limit.
func (r *Rule) sent(l SentLimit) *override {
	var known []*override
	if made := r.sentLimits.made.Load(); made != nil {
		known = *made
	}
	for _, o := range known {
		if o.limits[0].Quota == l.Quota && o.limits[0].Window == l.Window {
			return o
		}
	}
	o := &override{limits: []RuleLimit{r.compileSent(l)}}
	if len(known) >= mostSent {
		known = nil
	}
	known = append(slices.Clip(known), o)
	r.sentLimits.made.Store(&known)
	return o
}

// compileSent compiles a sent limit for a rule that has limits.
func (r *Rule) compileSent(l SentLimit) RuleLimit {
	first, window := &r.Limits[0], slices.Index(SentWindows[:], l.Window)
	limit := Limit{
		Name: first.Name, Algorithm: FixedWindow, Quota: l.Quota, Window: l.Window, Anchor: Clock,
		WarnAt: first.WarnAt, Durability: first.Durability,
	}
	return RuleLimit{
		Limit: limit, Cell: sentCell | uint32(window)<<sentShift | first.Cell, Meter: limit.Compile(first.Meter.Rev), HeaderName: r.Policy,
	}
}

// sentTo returns the index of the rule whose limits a sent limit replaces, or -1 if there is
// none. applied are the indexes of the rules that apply to the check.
func (p *Plan) sentTo(applied []uint16) int {
	best := -1
	for _, i := range applied {
		r := p.Rules[i]
		if r.Mode.Denies() && len(r.Limits) > 0 && (best < 0 || r.rank < p.Rules[best].rank) {
			best = int(i)
		}
	}
	return best
}

// TakesSentLimit reports whether a limit that is sent with a check can take effect: an enforced policy with limits
// applies, or the tenant's status or a list decides the check. now is in microseconds since the epoch.
func (s *Subject) TakesSentLimit(c *Check, now int64) bool {
	if reason, _ := s.beforePolicies(c, now); reason != "" {
		return true
	}
	if s.Plan == nil {
		return false
	}
	applied, _ := s.Plan.apply(s.Plan.match(c, nil), c, nil)
	return s.Plan.sentTo(applied) >= 0
}
