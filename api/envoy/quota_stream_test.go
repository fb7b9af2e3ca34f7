package envoy

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/testseed"
	"github.com/headgate/headgate/tenants"
)

// A quotaWorld is a node and its Envoys on a simulated clock.
type quotaWorld struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	token  string
	quotas *quotas
	envoys []*simulatedEnvoy
	admit  func(at time.Time) // called for each request that an Envoy allows
	delay  time.Duration      // longest way of an assignment
	lost   int                // one of so many assignments is lost; 0: none
}

// newQuotaWorld returns a world whose tenant has one limit for each user.
func newQuotaWorld(t *testing.T, limit enforcement.Limit) *quotaWorld {
	w := &quotaWorld{
		t: t, random: rand.New(rand.NewPCG(testseed.Seed(t), 0)), now: time.Unix(1_800_000_000, 0), token: tenants.NewToken(tenants.TenantToken),
		admit: func(time.Time) {},
	}
	current := tenantWith(t, w.token, limit)
	engine := enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return w.now.UnixMicro() }}), enforcement.Config{
		Now: func() time.Time { return w.now },
	})
	server := New(Config{Logger: slog.New(slog.DiscardHandler)})
	server.Open(api.New(api.Config{Decider: engine, Headers: api.Draft11, Snapshot: current}))
	w.quotas = newQuotas(server)
	w.quotas.now = func() time.Time { return w.now }
	return w
}

// A simulatedEnvoy does what the filter rate_limit_quota of Envoy 1.40 does for one bucket.
type simulatedEnvoy struct {
	*quotaWorld
	stream          *quotaStream // nil: Envoy has no connection
	known           bool         // Envoy has the bucket
	open            bool         // requests without an assignment pass
	strategy        *typev3.RateLimitStrategy
	tokens          int64
	size            int64 // of the bucket that tokens are left of; 0: the strategy has none
	ends            time.Time
	allowed, denied uint64
	coming          []comingActions // in the order of their arrival
}

// comingActions are the actions of one response, which arrive together.
type comingActions struct {
	at      time.Time
	actions []*bucketAction
}

func (w *quotaWorld) envoy(open bool, options ...string) *simulatedEnvoy {
	e := &simulatedEnvoy{quotaWorld: w, open: open}
	e.connect(options...)
	w.envoys = append(w.envoys, e)
	return e
}

func (e *simulatedEnvoy) connect(options ...string) {
	md := metadata.Pairs(append([]string{"authorization", "Bearer " + e.token}, options...)...)
	e.stream = &quotaStream{quotas: e.quotas, ctx: metadata.NewIncomingContext(e.t.Context(), md), buckets: map[string]*quotaBucket{}}
	if err := e.stream.readOptions(); err != nil {
		e.t.Fatal(err)
	}
}

// disconnect ends the stream. The Envoy continues with what it has.
func (e *simulatedEnvoy) disconnect() {
	e.stream.leave()
	e.stream = nil
}

// request sends one request through the Envoy.
func (e *simulatedEnvoy) request() bool {
	e.receive()
	allowed := e.open
	switch {
	case e.strategy.GetTokenBucket() != nil:
		if allowed = e.tokens > 0; allowed {
			e.tokens--
		}
	case e.strategy != nil:
		allowed = e.strategy.GetBlanketRule() == typev3.RateLimitStrategy_ALLOW_ALL
	}
	if allowed {
		e.allowed++
		e.admit(e.now)
	} else {
		e.denied++
	}
	if !e.known {
		e.known = true
		e.report()
	}
	return allowed
}

// report sends the usage, and queues the actions of the answer.
func (e *simulatedEnvoy) report() {
	e.receive()
	if e.stream == nil || !e.known {
		return
	}
	response, err := e.stream.report(&quotav3.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": "u1"}}, NumRequestsAllowed: e.allowed, NumRequestsDenied: e.denied,
	}}})
	if err != nil {
		e.t.Fatal(err)
	}
	e.allowed, e.denied = 0, 0
	if actions := response.GetBucketAction(); len(actions) > 0 && (e.lost == 0 || e.random.IntN(e.lost) > 0) {
		at := e.now
		if e.delay > 0 {
			at = at.Add(time.Duration(e.random.Int64N(int64(e.delay))))
		}
		e.coming = append(e.coming, comingActions{at, actions})
	}
	e.receive()
}

// receive applies the actions that have arrived, and ends an assignment.
func (e *simulatedEnvoy) receive() {
	for len(e.coming) > 0 && !e.coming[0].at.After(e.now) {
		actions := e.coming[0].actions
		e.coming = e.coming[1:]
		for _, action := range actions {
			e.apply(action)
		}
	}
	if e.strategy != nil && !e.now.Before(e.ends) {
		e.strategy, e.size = nil, 0
	}
}

// apply applies one action. A token bucket that follows another one starts with the share of tokens that is left of it,
// and an equal one changes nothing.
func (e *simulatedEnvoy) apply(action *bucketAction) {
	if action.GetAbandonAction() != nil {
		e.known, e.strategy, e.size, e.allowed, e.denied = false, nil, 0, 0, 0
		return
	}
	if !e.known {
		return
	}
	next := action.GetQuotaAssignmentAction()
	switch size := int64(next.GetRateLimitStrategy().GetTokenBucket().GetMaxTokens()); {
	case size == 0 || e.size == 0:
		e.size, e.tokens = size, size
	case size != e.size:
		e.size, e.tokens = size, size*e.tokens/e.size
	}
	e.strategy, e.ends = next.GetRateLimitStrategy(), e.now.Add(time.Duration(next.GetAssignmentTimeToLive().GetSeconds())*time.Second)
}

// play lets every Envoy send a number of requests in each tenth of a second, and a report every second.
func (w *quotaWorld) play(d time.Duration, rate func(e int) int) {
	for step := range int(d / (100 * time.Millisecond)) {
		for i, e := range w.envoys {
			for range rate(i) {
				e.request()
			}
			if step%10 == i%10 {
				e.report()
			}
		}
		w.now = w.now.Add(100 * time.Millisecond)
	}
}

// hourly is a limit whose default assignment is at most 20 requests.
var hourly = enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 200, Window: time.Hour, Anchor: enforcement.Clock}

// Two Envoys share a limit, and never allow more. What a killed one held stays charged.
func TestEnvoysShareALimit(t *testing.T) {
	t.Parallel()
	w, admitted := newQuotaWorld(t, hourly), 0
	w.admit = func(time.Time) { admitted++ }
	a, b := w.envoy(false), w.envoy(false)
	w.play(3*time.Second, func(int) int { return 1 })
	if a.tokens == 0 || b.tokens == 0 || admitted < 30 {
		t.Fatalf("after 3 s: %d and %d tokens, %d admitted", a.tokens, b.tokens, admitted)
	}
	b.stream.leave() // killed
	w.envoys = w.envoys[:1]
	w.play(time.Second, func(int) int { return 20 })
	w.play(60*time.Second, func(int) int { return 1 })
	if want := 200 - int(b.tokens); admitted != want {
		t.Errorf("%d admitted, want %d: the killed Envoy had %d", admitted, want, b.tokens)
	}
	if s := a.strategy; s == nil || s.GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL {
		t.Errorf("at the end: %v", s)
	}
	w.now = w.now.Add(time.Hour)
	before := admitted
	w.play(2*time.Second, func(int) int { return 1 })
	if admitted == before {
		t.Error("the next window admits nothing")
	}
}

// In any window, the Envoys together allow at most the quota and two assignments of each Envoy: with assignments that
// arrive late or never, reports in flight, and Envoys that lose their connection.
func TestEnvoysStayWithinTheBound(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.TokenBucket} {
		for _, envoys := range []int{1, 2, 5} {
			t.Run(fmt.Sprint(algorithm, " ", envoys), func(t *testing.T) {
				t.Parallel()
				const quota, window, each = 300, time.Minute, 30
				limit := enforcement.Limit{Name: "l1", Algorithm: algorithm, Quota: quota, Window: window}
				if algorithm == enforcement.FixedWindow {
					limit.Anchor = enforcement.Clock
				}
				w := newQuotaWorld(t, limit)
				w.delay, w.lost = delivery, 10
				bound := float64(envoys * 2 * each)
				level, last, most, total := bound+quota, w.now, 0.0, 0
				var log []time.Time
				counts := map[time.Time]int{}
				w.admit = func(at time.Time) {
					total++
					switch algorithm {
					case enforcement.TokenBucket: // an exact bucket that is larger by the bound
						level = min(level+at.Sub(last).Seconds()*quota/window.Seconds(), bound+quota) - 1
						last, most = at, max(most, quota+bound-level)
					case enforcement.FixedWindow:
						counts[at.Truncate(window)]++
						most = max(most, float64(counts[at.Truncate(window)]))
					default:
						for log = append(log, at); at.Sub(log[0]) >= window; {
							log = log[1:]
						}
						most = max(most, float64(len(log)))
					}
				}
				for range envoys {
					w.envoy(false)
				}
				for range 60 {
					busy := w.random.IntN(4)
					w.play(5*time.Second, func(int) int { return w.random.IntN(2 + 2*busy) })
					if e := w.envoys[w.random.IntN(envoys)]; e.stream == nil {
						e.connect()
					} else if w.random.IntN(3) == 0 {
						e.disconnect()
					}
				}
				t.Logf("at most %v of %d and %v; %d in all", most, quota, bound, total)
				if most > quota+bound {
					t.Errorf("%v in a window, want at most %d and %v", most, quota, bound)
				}
				if total < 3*quota {
					t.Errorf("%d admitted in five windows: the Envoys hold back too much", total)
				}
			})
		}
	}
}
