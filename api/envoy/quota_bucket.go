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

// Durations of assignments. Envoy only counts whole seconds. Envoy 1.40 reports every 5 s,
// whatever reporting_interval is.
const (
	assignmentTTL = 20 * time.Second
	// delivery is the maximum time from making an assignment to its arrival at Envoy.
	delivery = time.Second
	// unusedFor is how long the unused requests of an assignment are valid, unless a window
	// ends earlier.
	unusedFor = 3 * assignmentTTL
	// firstSize is the number of requests in the first assignment of a bucket, before its rate
	// is known.
	firstSize = 16
	// fewest is the smallest value of the maximum size of an assignment.
	fewest = 10
)

type bucketAction = quotav3.RateLimitQuotaResponse_BucketAction

// A quotaPool is what the streams of this node share for equal buckets of one tenant. Each
// charged request is part of an assignment, unused in the pool, or reported as allowed. If an
// Envoy reports after its assignment ended, the requests that it did not use go to the pool,
// for other assignments. If it never reports again, they stay charged, because it may have
// allowed them.
type quotaPool struct {
	mu      sync.Mutex
	members int // number of buckets of open streams
	unused  []unusedRequests
}

// unusedRequests are requests that are charged, but not assigned to an Envoy. They expire at
// the time until.
type unusedRequests struct {
	n     int64
	until time.Time
}

// A strategy is what an Envoy does with the requests of a bucket.
type strategy uint8

const (
	unassigned strategy = iota // Envoy applies no_assignment_behavior, or what it does after an assignment expires
	limited                    // Envoy may allow held requests
	unlimited
	denying
)

// A quotaBucket is a bucket of one stream. The mutex of the pool protects the fields after
// pool.
type quotaBucket struct {
	id         *quotav3.BucketId
	descriptor *descriptor
	pool       *quotaPool

	strategy strategy
	// held is the maximum number of charged requests that Envoy may still allow.
	held int64
	// until is the time at which held expires, because a window ends in which the requests were
	// charged.
	until time.Time
	// renew is the middle of the assignment's time. expires is the time by which Envoy has
	// certainly noticed the end of the assignment.
	renew, expires time.Time
	// owed is the number of requests that Envoy allowed without an assignment, and that are not
	// charged yet.
	owed int64
}

// report records the number of requests that Envoy allowed, and returns how many of them are
// not charged yet. If the assignment has expired, it also ends it.
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

// owe adds n to the requests that must still be charged, because the node could not charge them
// now.
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

// asks reports whether the bucket needs another assignment. It does if it had requests, and if
// the remaining requests do not last until the next report or soon expire. A bucket without
// requests keeps its assignment until that ends.
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

// size returns the number of requests to charge for the next assignment, in addition to those
// that Envoy still has. It first moves unused requests from the pool to the bucket; found
// reports whether there were any. state is the decision for one more request. most is the
// maximum size of an assignment, or 0 for the default.
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
	return max(min(want-b.held, (left+1)/2), 0), unused > 0 // half of what is left is for other Envoys, nodes and wires
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

// assign returns the actions to send to Envoy after a decision. d is the decision that charged
// n requests, or one that charged nothing if n is 0. found is the result of size. There is no
// action if Envoy keeps its assignment.
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

// tokens returns the action that assigns what is held. Envoy starts a token bucket with the share of tokens that the
// bucket before it had left, and keeps the bucket if both are equal. So another strategy must come before it, in the
// same response, which Envoy applies as a whole. Envoy fills the bucket with a token in a year.
func (b *quotaBucket) tokens(ttl time.Duration) *bucketAction {
	return b.action(ttl, &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
		MaxTokens: uint32(b.held), TokensPerFill: wrapperspb.UInt32(1), FillInterval: &durationpb.Duration{Seconds: 365 * 24 * 3600},
	}}})
}

// begin records a new assignment that lasts for ttl. The caller must hold the lock.
func (b *quotaBucket) begin(s strategy, ttl time.Duration, now time.Time) {
	b.strategy, b.renew, b.expires = s, now.Add(ttl/2), now.Add(ttl+delivery)
}

// validUntil returns when the requests of an assignment expire: at the end of the first fixed
// window in which they are charged. If no limit has a fixed window, they expire after
// unusedFor.
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

// takeUnused moves at most n unused requests from the pool to a bucket, and returns their
// number. The caller must hold the lock.
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

// empty reports whether the pool has neither buckets nor unused requests. The caller must hold
// the lock.
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

// sweep removes empty pools. It does this at most once in assignmentTTL.
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
