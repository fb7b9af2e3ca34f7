//go:build !quick

package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// A stored is a Journal with fixed states.
type stored struct {
	mu      sync.Mutex
	states  []enforcement.Stored
	nodes   []string
	flushes int
}

func (s *stored) Flush(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushes++
	return nil
}

func (s *stored) States(_ context.Context, _ string, use func([]enforcement.Stored) error) error {
	s.mu.Lock()
	states := s.states
	s.mu.Unlock()
	if len(states) == 0 {
		return nil
	}
	return use(states)
}

// set replaces the states.
func (s *stored) set(states []enforcement.Stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = states
}

func (s *stored) Nodes(context.Context) ([]string, error) { return s.nodes, nil }

// restoring restores the durable counters of l from j until the test ends.
func restoring(t testing.TB, l *redis.Limiter, j enforcement.Journal) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.KeepRestored(ctx, j) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("KeepRestored: %v", err)
		}
	})
}

// marker returns the name of the marker of the durable counters on a single server.
func marker(prefix string) string { return prefix + "{00}d" }

// Without the marker, durable requests are Lost and charge nothing, and the other requests of
// the call are decided. After the restoration, the counters have the stored units.
func TestDurableRequestsWithoutMarker(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{URL: servertest.Redis(t), Durable: true})
	durable, other := charge(1, perHour, 400), charge(2, perMinute, 1)
	shadow := charge(3, perHour, 1)
	shadow.Group = enforcement.FirstShadowGroup
	requests := []enforcement.Request{request(durable), request(other), request(other, durable), request(other, shadow)}
	outcomes := make([]enforcement.Outcome, len(requests))
	for range 2 { // the second Take knows of the loss before its call
		l.Take(t.Context(), requests, outcomes)
		for i, want := range []enforcement.Verdict{enforcement.Lost, enforcement.Granted, enforcement.Lost, enforcement.Granted} {
			if o := &outcomes[i]; o.Verdict != want || (o.Err != nil) != (want == enforcement.Lost) {
				t.Errorf("request %d: %s, %v; want %s", i, o.Verdict, o.Err, want)
			}
		}
	}
	if l.Status().Unrestored.IsZero() {
		t.Error("the status does not have the loss")
	}
	now := time.Now().UnixMicro()
	j := &stored{states: []enforcement.Stored{{
		Key: durable.Key, Algorithm: enforcement.FixedWindow, State: enforcement.State{Rev: 1, A: 700, T: now - 1_000_000},
		At: now, Ends: now + time.Hour.Microseconds() - 1_000_000, Home: "07",
	}}}
	restoring(t, l, j)
	l.Restored(t.Context())
	for i, want := range []enforcement.Verdict{enforcement.Refused, enforcement.Granted, enforcement.Refused} {
		r := request(durable)
		if i == 1 {
			r = request(charge(1, perHour, 300))
		}
		if o := take(t.Context(), l, r); o.Verdict != want {
			t.Errorf("check %d after the restoration: %s, %v; want %s", i, o.Verdict, o.Err, want)
		}
	}
	if s := l.Status(); !s.Unrestored.IsZero() || s.Restored != 1 || s.Mismatches != 0 || j.flushes == 0 {
		t.Errorf("%+v, %d flushes", s, j.flushes)
	}
}

// A marker of another server, as a replica or a restarted server has it, is deleted before the
// first durable decision of a new connection.
func TestMarkerOfAnotherServer(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	l := open(t, redis.Config{URL: url, Prefix: prefix, Durable: true})
	restoring(t, l, &stored{})
	l.Restored(t.Context())
	mustTake(t, l, request(charge(1, perHour, 1)))
	raw := client(t, url)
	right := raw.Get(t.Context(), marker(prefix)).Val()
	for _, wrong := range []string{"0123456789abcdef " + right[len(right)-32:], right[:41] + "0123456789abcdef0123456789abcdef", "x"} {
		if err := raw.Set(t.Context(), marker(prefix), wrong, 0).Err(); err != nil {
			t.Fatal(err)
		}
		fresh := open(t, redis.Config{URL: url, Prefix: prefix, Durable: true})
		if o := take(t.Context(), fresh, request(charge(1, perHour, 1))); o.Verdict != enforcement.Lost {
			t.Errorf("with the marker %q: %s", wrong, o.Verdict)
		}
		take(t.Context(), l, request(charge(1, perHour, 1))) // it finds that the marker is absent
		eventually(t, "the marker is set again", func() bool { return raw.Get(t.Context(), marker(prefix)).Val() == right })
	}
}

// A node restores nothing before the other nodes have flushed what they read.
func TestRestorationAwaitsTheOtherNodes(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	var nodes []*redis.Limiter
	var journals []*stored
	names := []string{"a", "b", "c"}
	for _, name := range names {
		nodes = append(nodes, open(t, redis.Config{URL: url, Prefix: prefix, Durable: true, Node: name}))
		journals = append(journals, &stored{nodes: names})
		restoring(t, nodes[len(nodes)-1], journals[len(journals)-1])
	}
	for i, l := range nodes {
		l.Restored(t.Context())
		mustTake(t, l, request(charge(1, perHour, 1)))
		journals[i].mu.Lock()
		if journals[i].flushes == 0 {
			t.Errorf("node %d has not flushed", i)
		}
		journals[i].mu.Unlock()
	}
}

// The script restores the states that Stored.Newer calls newer.
func TestRestoredStates(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	random := rand.New(rand.NewPCG(testseed.Seed(t), 0))
	bucket := enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1000, Window: time.Hour, Durability: enforcement.Durable}.Compile(1)
	now := time.Now().UnixMicro()
	some := func() enforcement.State {
		if random.IntN(4) == 0 {
			return enforcement.State{}
		}
		return enforcement.State{Rev: 1, A: 100 + random.Int64N(3), T: now - 1_000_000*random.Int64N(3)}
	}
	type pair struct {
		charge enforcement.Charge
		want   enforcement.State
	}
	var pairs []pair
	var states, has []enforcement.Stored
	for cell := range uint32(600) {
		m := perHour
		if cell%2 == 0 {
			m = bucket
		}
		c := charge(1+cell, m, 0)
		was := some()
		s := enforcement.Stored{
			Key: c.Key, Algorithm: m.Algorithm, State: some(), At: now - 1_000_000*random.Int64N(3),
			Ends: now + time.Hour.Microseconds(), Home: "07",
		}
		if !was.Fresh() {
			has = append(has, enforcement.Stored{Key: c.Key, Algorithm: m.Algorithm, State: was, At: now, Ends: s.Ends, Home: "07"})
		}
		if random.IntN(10) == 0 {
			s.Ends = now - 1
		}
		want := was
		if s.Newer(&was) && (s.State.Fresh() || s.Ends > now) {
			want = s.State
		}
		pairs, states = append(pairs, pair{c, want}), append(states, s)
	}
	raw := client(t, url)
	for _, list := range [][]enforcement.Stored{has, states} {
		l := open(t, redis.Config{URL: url, Prefix: prefix, Durable: true})
		raw.Del(t.Context(), marker(prefix))
		restoring(t, l, &stored{states: list})
		eventually(t, "the states are restored", func() bool { return raw.Exists(t.Context(), marker(prefix)).Val() == 1 })
		l.Restored(t.Context())
	}
	for i, p := range pairs {
		value := raw.Get(t.Context(), redis.KeyName(prefix, "07", &p.charge.Key)).Val()
		if got := redis.ReadPlain(value); got.Rev != p.want.Rev || got.A != p.want.A || got.T != p.want.T {
			t.Fatalf("pair %d: %q, want %+v; stored %+v", i, value, p.want, states[i])
		}
		if value != "" && raw.PTTL(t.Context(), redis.KeyName(prefix, "07", &p.charge.Key)).Val() <= 0 {
			t.Errorf("pair %d: the key never expires", i)
		}
	}
}

// Durable requests of every form are decided as without the marker.
func TestDurableForms(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{URL: servertest.Redis(t), Durable: true})
	restoring(t, l, &stored{})
	l.Restored(t.Context())
	random := rand.New(rand.NewPCG(testseed.Seed(t), 0))
	used := [3]int64{}
	for n := range 300 {
		var requests []enforcement.Request
		for range 1 + random.IntN(4) {
			r := request(charge(1, perHour, random.Int64N(3)))
			if random.IntN(2) == 0 {
				r.Charges = append(r.Charges, charge(2, logPerHour, random.Int64N(3)))
			}
			if random.IntN(3) == 0 {
				r.Charges = append(r.Charges, charge(3, perMinute, 1))
			}
			if random.IntN(5) == 0 {
				r.ID = [16]byte{byte(n), byte(n >> 8), byte(len(requests))}
				r.Idempotency = &enforcement.Idempotency{Key: enforcement.Key{Tenant: 7, Partition: r.ID}, Request: r.ID}
			}
			requests = append(requests, r)
		}
		outcomes := make([]enforcement.Outcome, len(requests))
		l.Take(t.Context(), requests, outcomes)
		for i := range outcomes {
			if v := outcomes[i].Verdict; v == enforcement.Granted {
				used[0] += requests[i].Charges[0].Cost
			} else if v != enforcement.Refused {
				t.Fatalf("%s: %v", v, outcomes[i].Err)
			}
		}
	}
	r := request(charge(1, perHour, 0))
	r.Mode = enforcement.Peek
	if a := mustTake(t, l, r).Charges[0].State.A; a != used[0] {
		t.Errorf("%d units are charged, want %d", a, used[0])
	}
	if s := l.Status(); s.Mismatches != 0 || s.Unreadable != 0 {
		t.Errorf("%+v", s)
	}
	if take, batch, single := redis.ScriptCalls(l); take == 0 || batch == 0 || single == 0 {
		t.Errorf("calls of the scripts: take %d, batch %d, single %d", take, batch, single)
	}
}

// BenchmarkDurable measures checks of a durable fixed window, in turns with those of a plain
// one. x-plain is the median ratio of their times.
func BenchmarkDurable(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := open(b, redis.Config{URL: servertest.Redis(b), Durable: true})
			restoring(b, l, &stored{})
			l.Restored(b.Context())
			limit := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: enforcement.MaxQuota, Window: time.Hour}
			durable := limit.Compile(1)
			limit.Durability = enforcement.NotDurable
			plain := limit.Compile(1)
			ask := func(m *enforcement.Meter, checks int) time.Duration {
				began := time.Now()
				var all sync.WaitGroup
				for caller := range callers {
					all.Go(func() {
						outcomes := make([]enforcement.Outcome, 1)
						r := request(charge(uint32(1+caller), m, 1))
						for range checks / callers {
							l.Take(b.Context(), []enforcement.Request{r}, outcomes)
							if outcomes[0].Verdict != enforcement.Granted {
								b.Error(outcomes[0].Verdict, outcomes[0].Err)
							}
						}
					})
				}
				all.Wait()
				return time.Since(began)
			}
			const checks = 1024
			ask(plain, checks)
			ask(durable, checks)
			var ratios []float64
			for b.Loop() {
				base := ask(plain, checks)
				ratios = append(ratios, float64(ask(durable, checks))/float64(base))
			}
			b.ReportMetric(median(ratios), "x-plain")
			b.ReportMetric(0, "ns/op")
		})
	}
}
