package envoy

import (
	"math"
	"sync"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/enforcement"
)

// Durations and sizes of assignments. Envoy counts the time of an assignment in whole seconds.
// Envoy 1.40 reports every 5 s, even if reporting_interval has another value.
const (
	assignmentTTL = 20 * time.Second
	// delivery is the maximum time between the making of an assignment and its arrival at Envoy.
	delivery = time.Second
	// unusedFor is how long the requests of an assignment can be used if no fixed window ends
	// earlier.
	unusedFor = 3 * assignmentTTL
	// firstSize is the size of an assignment for a bucket whose rate is low or not yet known,
	// unless the maximum size is smaller.
	firstSize = 16
	// fewest is the lower bound of the default maximum size of an assignment; see available.
	fewest = 10
)

type bucketAction = quotav3.RateLimitQuotaResponse_BucketAction

// A quotaPool connects the equal buckets of one tenant in all streams of this node. At any time,
// each charged request is in one of three states: assigned to an Envoy, unused in the pool, or
// reported as allowed. When an Envoy sends a report after its assignment has ended, the requests
// that it did not use go to the pool, for other assignments. If an Envoy never reports again, its
// requests stay charged, because it may have allowed them.
type quotaPool struct {
	mu      sync.Mutex
	members int // number of buckets of open streams
	unused  []unusedRequests
}

// unusedRequests is a number of requests that are charged, but not assigned to an Envoy. They
// expire at the time until.
type unusedRequests struct {
	n     int64
	until time.Time
}

// A strategy says how an Envoy treats the requests of a bucket.
type strategy uint8

const (
	unassigned strategy = iota // no assignment: Envoy applies no_assignment_behavior or expired_assignment_behavior
	limited                    // Envoy may allow held requests
	unlimited
	denying
)

// A quotaBucket is the state of one Envoy bucket in one stream. The mutex of pool protects the
// fields below pool.
type quotaBucket struct {
	id         *quotav3.BucketId
	nameable   bool // a response can contain id
	descriptor *descriptor
	pool       *quotaPool

	strategy strategy
	// held is the maximum number of charged requests that Envoy may still allow.
	held int64
	// until is the time at which the requests in held expire, for example because the window ends
	// in which they were charged.
	until time.Time
	// renew is the time at which half of the assignment's life is over. expires is a time by which
	// the assignment has ended at Envoy, even if it arrived late.
	renew, expires time.Time
	// owed is the number of requests that Envoy allowed without an assignment and that Headgate has
	// not charged yet.
	owed int64
}

// report records the number of requests that Envoy allowed, and returns how many requests must
// still be charged. If the assignment has expired, report ends it and moves its unused requests to
// the pool.
func (b *quotaBucket) report(allowed int64, now time.Time) (owed int64) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if !now.Before(b.until) {
		b.held = 0
	}
	covered := min(allowed, b.held)
	b.held -= covered
	if b.strategy != unassigned && !now.Before(b.expires) {
		if b.held > 0 {
			b.pool.unused = append(b.pool.unused, unusedRequests{b.held, b.until})
		}
		b.strategy, b.held = unassigned, 0
	}
	owed, b.owed = b.owed+allowed-covered, 0
	return min(owed, math.MaxInt32)
}

// owe adds n to owed. It is called when the node was too busy to charge n requests.
func (b *quotaBucket) owe(n int64) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.owed += n
}

// ended reports whether Envoy no longer has an assignment of quota for this bucket.
func (b *quotaBucket) ended() bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.strategy == unassigned
}

// asks reports whether the bucket needs another assignment. demand is the number of requests since
// the last report. A bucket with requests needs an assignment if Envoy may not allow any of them
// now, if the assigned requests may not last until the next report, or if half of the assignment's
// life is over. A bucket without requests keeps its assignment until that ends.
func (b *quotaBucket) asks(demand int64, now time.Time) bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	switch {
	case demand == 0:
		return false
	case b.strategy == unlimited:
		return !now.Before(b.renew)
	}
	return b.strategy != limited || 2*b.held < 3*demand || !now.Before(b.renew)
}

// size returns the number of requests to charge for the next assignment, in addition to the
// requests that Envoy still has. It first moves unused requests from the pool to the bucket; found
// reports whether there were any. state is the decision of a peek for one request. demand is the
// number of requests since the last report. most is the maximum size of an assignment, or 0 for the
// default.
func (b *quotaBucket) size(state *enforcement.Decision, demand, most int64, now time.Time) (n int64, found bool) {
	left, largest, bounded := available(state)
	if !bounded {
		return 0, false
	}
	if most > 0 {
		largest = most
	}
	want := min(max(2*demand, firstSize), largest)
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	unused := b.pool.takeUnused(want-b.held, b, now)
	b.held += unused
	return max(min(want-b.held, (left+1)/2), 0), unused > 0 // takes only half of the remaining quota, so that other callers get some
}

// available returns how many more requests the limits of a decision allow, and the default
// maximum size of an assignment: a tenth of the smallest quota, but at least fewest. bounded is
// false if no limit applies.
func available(state *enforcement.Decision) (left, largest int64, bounded bool) {
	if !state.Allowed {
		return 0, fewest, true
	}
	left, largest = math.MaxInt64, math.MaxInt64
	for i := range state.Limits {
		l := &state.Limits[i]
		if !l.Rule.Mode.Denies() || l.Cost == 0 {
			continue
		}
		left = min(left, l.Remaining/l.Cost+1, enforcement.MaxCost/l.Cost) // a peek includes the request
		largest = min(largest, max(l.Limit.Quota/l.Cost/10, fewest))
	}
	return left, largest, left != math.MaxInt64
}

// assign returns the actions to send to Envoy after a decision. If n is above 0, d is the decision
// that charged n requests; otherwise d charged nothing. found is the result of size. If Envoy can
// keep its assignment, there is no action.
func (b *quotaBucket) assign(d *enforcement.Decision, n int64, found bool, now time.Time) []*bucketAction {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if _, _, bounded := available(d); !bounded && n == 0 {
		b.begin(unlimited, assignmentTTL, now)
		return []*bucketAction{b.allow()}
	}
	if d.Allowed && n > 0 {
		b.held += n
		b.until = validUntil(d, now)
		found = true
	}
	switch {
	case b.held == 0:
		ttl := assignmentTTL
		if d.RetryAfter != enforcement.Never {
			ttl = min(seconds(time.Duration(d.RetryAfter)*time.Millisecond), ttl)
		}
		b.begin(denying, ttl, now)
		return []*bucketAction{b.deny(ttl)}
	case !found && b.strategy == limited && now.Before(b.renew):
		return nil
	}
	ttl := min(seconds(b.until.Sub(now)), assignmentTTL)
	b.begin(limited, ttl, now)
	return []*bucketAction{b.deny(ttl), b.tokens(ttl)}
}

// tokens returns the action that assigns the requests in held as a token bucket. If Envoy already has a token bucket
// for this ID, it does not start the new one full: it keeps an equal bucket, and it starts a different one with the
// share of tokens that the old one had left. So the caller must send an action with another strategy before this one,
// in the same response. Envoy refills the bucket with one token a year, which is practically never.
func (b *quotaBucket) tokens(ttl time.Duration) *bucketAction {
	return b.action(ttl, &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
		MaxTokens: uint32(b.held), TokensPerFill: wrapperspb.UInt32(1), FillInterval: &durationpb.Duration{Seconds: 365 * 24 * 3600},
	}}})
}

// begin records a new assignment that lasts for ttl. The caller must hold the mutex of the pool.
func (b *quotaBucket) begin(s strategy, ttl time.Duration, now time.Time) {
	b.strategy, b.renew, b.expires = s, now.Add(ttl/2), now.Add(ttl+delivery)
}

// validUntil returns the time until which the requests that d charged can be used. That is the end
// of the first fixed window in which they are charged. If no limit has a fixed window, it is
// unusedFor from now.
func validUntil(d *enforcement.Decision, now time.Time) time.Time {
	until := now.Add(unusedFor)
	windowed := false
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Rule.Mode.Denies() || l.Cost == 0 || l.Limit.Algorithm != enforcement.FixedWindow {
			continue
		}
		if end := now.Add(time.Duration(l.ResetAfter) * time.Millisecond); !windowed || end.Before(until) {
			until, windowed = end, true
		}
	}
	return until
}

// seconds rounds d up to whole seconds, but at least to one.
func seconds(d time.Duration) time.Duration {
	return max((d+time.Second-1)/time.Second, 1) * time.Second
}

// allow returns an action that makes Envoy allow all requests of the bucket.
func (b *quotaBucket) allow() *bucketAction {
	return b.blanket(typev3.RateLimitStrategy_ALLOW_ALL, assignmentTTL)
}

// deny returns an action that makes Envoy deny all requests of the bucket.
func (b *quotaBucket) deny(ttl time.Duration) *bucketAction {
	return b.blanket(typev3.RateLimitStrategy_DENY_ALL, ttl)
}

func (b *quotaBucket) blanket(rule typev3.RateLimitStrategy_BlanketRule, ttl time.Duration) *bucketAction {
	return b.action(ttl, &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}})
}

func (b *quotaBucket) action(ttl time.Duration, s *typev3.RateLimitStrategy) *bucketAction {
	return &bucketAction{BucketId: b.id, BucketAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
			AssignmentTimeToLive: durationpb.New(ttl), RateLimitStrategy: s,
		},
	}}
}

// abandon returns an action that makes Envoy remove the bucket. The next request creates it
// again.
func (b *quotaBucket) abandon() *bucketAction {
	return &bucketAction{BucketId: b.id, BucketAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction_{
		AbandonAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction{},
	}}
}

// takeUnused removes at most n unused requests from the pool for the bucket b, and returns their
// number. It lowers b.until if they expire earlier. It also removes expired requests. The caller
// must hold the mutex of the pool.
func (p *quotaPool) takeUnused(n int64, b *quotaBucket, now time.Time) (taken int64) {
	kept := p.unused[:0]
	for _, u := range p.unused {
		if !now.Before(u.until) {
			continue
		}
		k := max(min(n-taken, u.n), 0)
		if k > 0 && (b.held+taken == 0 || u.until.Before(b.until)) {
			b.until = u.until
		}
		taken += k
		if u.n -= k; u.n > 0 {
			kept = append(kept, u)
		}
	}
	p.unused = kept
	return taken
}

// empty reports whether the pool has neither buckets nor unused requests. The caller must hold the
// mutex of the pool.
func (p *quotaPool) empty(now time.Time) bool {
	p.takeUnused(0, nil, now)
	return p.members == 0 && len(p.unused) == 0
}

// join adds a bucket to the pool with the given name. It returns false if the node has too many
// pools.
func (q *quotas) join(b *quotaBucket, name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	pool := q.pools[name]
	if pool == nil {
		if len(q.pools) == maxPools {
			return false
		}
		pool = &quotaPool{}
		q.pools[name] = pool
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.members++
	b.pool = pool
	return true
}

// leave removes a bucket from its pool.
func (b *quotaBucket) leave() {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.pool.members--
}

// sweep removes empty pools. It does nothing if it ran less than assignmentTTL ago.
func (q *quotas) sweep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if now.Sub(q.swept) < assignmentTTL {
		return
	}
	q.swept = now
	for name, pool := range q.pools {
		pool.mu.Lock()
		if pool.empty(now) {
			delete(q.pools, name)
		}
		pool.mu.Unlock()
	}
}
