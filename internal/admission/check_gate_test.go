package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A queueTest records in which order checks enter a Gate and which ones are
// turned away.
type queueTest struct {
	*Gate
	mu     sync.Mutex
	log    []string // "a" entered, "a:full" got ErrOverloaded, "a:gone" ended by its context
	sorted int      // length of log at the last step; what one step adds is in order of names
}

// run runs a test with a Gate. No slot is taken and no check waits at its end.
func run(t *testing.T, cfg Config, test func(t *testing.T, q *queueTest)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queueTest{Gate: New(cfg)}
		test(t, q)
		synctest.Wait()
		if s := q.Status(); s.InService != 0 || s.Waiting != 0 || len(q.queues) != 0 || q.state.Load() != 0 {
			t.Errorf("the gate is not empty at the end: %+v, %d queues", s, len(q.queues))
		}
	})
}

// enter starts a check and waits until it is in service, turned away or waits.
// The first letter of its name is its tenant.
func (q *queueTest) enter(ctx context.Context, name string, weight int) {
	go func() {
		err := q.Enter(ctx, uint32(name[0]), weight)
		switch {
		case errors.Is(err, ErrOverloaded):
			name += ":full"
		case err != nil:
			name += ":gone"
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.log = append(q.log, name)
	}()
	q.step()
}

// step waits until every check is in service, turned away or waits.
func (q *queueTest) step() {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	slices.Sort(q.log[q.sorted:])
	q.sorted = len(q.log)
}

// leave ends checks of these weights, one after the other.
func (q *queueTest) leave(weights ...int) {
	for _, w := range weights {
		q.Leave(w)
		q.step()
	}
}

// want compares the log since the last call.
func (q *queueTest) want(t *testing.T, want string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if got := strings.Join(q.log, " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	q.log, q.sorted = nil, 0
}

func TestSlotsGoRoundTheTenants(t *testing.T) {
	run(t, Config{Slots: 2}, func(t *testing.T, q *queueTest) {
		for _, name := range strings.Fields("a1 a2 a3 a4 a5 a6 b1 b2 c1") {
			q.enter(t.Context(), name, 1)
		}
		q.want(t, "a1 a2")
		q.leave(1, 1, 1, 1)
		q.want(t, "a3 b1 c1 a4")
		q.enter(t.Context(), "d1", 1) // a newcomer waits for one turn of each other tenant
		q.leave(1, 1, 1, 1)
		q.want(t, "b2 a5 d1 a6")
		q.leave(1, 1)
		q.enter(t.Context(), "a7", 1)
		q.want(t, "a7")
		q.leave(1)
	})
}

func TestChecksBeyondTheBoundAreTurnedAway(t *testing.T) {
	run(t, Config{Slots: 1, Waiting: 3}, func(t *testing.T, q *queueTest) {
		for _, name := range strings.Fields("a1 a2 a3 a4 a5") {
			q.enter(t.Context(), name, 1)
		}
		q.want(t, "a1 a5:full")
		if s := q.Status(); s != (Status{InService: 1, Waiting: 3, Overloaded: 1}) {
			t.Errorf("%+v", s)
		}
		q.leave(1, 1, 1, 1)
		q.want(t, "a2 a3 a4")
	})
	t.Run("none waits", func(t *testing.T) {
		run(t, Config{Slots: 1, Waiting: -1}, func(t *testing.T, q *queueTest) {
			q.enter(t.Context(), "a1", 1)
			q.enter(t.Context(), "b1", 1)
			q.want(t, "a1 b1:full")
			q.leave(1)
		})
	})
}

// A full room belongs to the tenants in equal shares: a newcomer within its
// share takes the place of the newest check of the tenant that holds most.
func TestFullRoomIsShared(t *testing.T) {
	run(t, Config{Slots: 1, Waiting: 4}, func(t *testing.T, q *queueTest) {
		for _, name := range strings.Fields("a0 a1 a2 a3 a4") {
			q.enter(t.Context(), name, 1)
		}
		q.want(t, "a0")
		q.enter(t.Context(), "b1", 1)
		q.want(t, "a4:full")
		q.enter(t.Context(), "b2", 1)
		q.want(t, "a3:full")
		q.enter(t.Context(), "b3", 1) // 2 of 4 is the share of each
		q.enter(t.Context(), "a5", 1)
		q.want(t, "b3:full a5:full")
		q.enter(t.Context(), "c1", 1)                                          // the share is 4/3 now
		if len(q.log) != 1 || q.log[0] != "a2:full" && q.log[0] != "b2:full" { // they hold as much
			t.Error(q.log)
		}
		q.log, q.sorted = nil, 0
		q.enter(t.Context(), "c2", 1)
		q.want(t, "c2:full")
		q.leave(1, 1, 1, 1, 1)
	})
}

func TestHeavyCheckTakesPlacesOfSeveral(t *testing.T) {
	run(t, Config{Slots: 4, Waiting: 6}, func(t *testing.T, q *queueTest) {
		q.enter(t.Context(), "a0", 4)
		for _, name := range strings.Fields("a1 a2 a3 a4 a5 a6") {
			q.enter(t.Context(), name, 1)
		}
		q.enter(t.Context(), "b1", 3)
		q.want(t, "a0 a4:full a5:full a6:full")
		q.enter(t.Context(), "c1", 3) // more than a third of the room
		q.want(t, "c1:full")
		q.leave(4)
		q.want(t, "a1 a2 a3")
		q.leave(1, 1)
		q.want(t, "b1")
		q.leave(1, 3)
	})
}

// Tenants share weight: a check of weight 3 has its turn after three checks of
// the other tenant. Lighter checks do not overtake it then.
func TestWeights(t *testing.T) {
	run(t, Config{Slots: 4}, func(t *testing.T, q *queueTest) {
		q.enter(t.Context(), "z", 1000) // counts as 4
		q.enter(t.Context(), "a1", 1)
		q.enter(t.Context(), "b1", 3)
		for _, name := range strings.Fields("a2 a3 a4 a5") {
			q.enter(t.Context(), name, 1)
		}
		q.want(t, "z")
		q.leave(1000)
		q.want(t, "a1 a2 a3")
		q.leave(1)
		q.want(t, "")
		q.leave(1)
		q.want(t, "b1")
		q.leave(1)
		q.want(t, "a4")
		q.leave(3)
		q.want(t, "a5")
		q.leave(1)
		q.enter(t.Context(), "c1", 4)
		q.enter(t.Context(), "a6", 0) // counts as 1
		q.want(t, "")
		q.leave(1)
		q.want(t, "c1")
		q.leave(4, 1)
		q.want(t, "a6")
	})
}

func TestEndedContextLeavesTheQueue(t *testing.T) {
	run(t, Config{Slots: 1, Waiting: 3}, func(t *testing.T, q *queueTest) {
		ctx, cancel := context.WithCancel(t.Context())
		q.enter(t.Context(), "a0", 1)
		q.enter(t.Context(), "a1", 1)
		q.enter(ctx, "a2", 1)
		q.enter(ctx, "b1", 1)
		q.want(t, "a0")
		cancel()
		q.step()
		if s := q.Status(); s.Waiting != 1 || s.Overloaded != 0 {
			t.Errorf("%+v", s)
		}
		q.want(t, "a2:gone b1:gone")
		q.enter(t.Context(), "a3", 1)
		q.leave(1, 1, 1)
		q.want(t, "a1 a3")
	})
}

// A check whose context ends just after it got its slots gives them back.
func TestContextThatEndsWithTheTurn(t *testing.T) {
	run(t, Config{Slots: 1}, func(t *testing.T, q *queueTest) {
		for range 100 { // select takes one of the two at random
			ctx, cancel := context.WithCancel(t.Context())
			q.enter(t.Context(), "a", 1)
			q.enter(ctx, "b", 1)
			cancel()
			q.leave(1)
			if q.log[1] == "b" {
				q.Leave(1)
			}
			q.log, q.sorted = nil, 0
			if s := q.Status(); s.InService != 0 || s.Waiting != 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// A leaver is a context whose client may leave.
type leaver struct {
	context.Context
	left atomic.Bool
}

func (l *leaver) Left() bool { return l.left.Load() }

// A check whose client has left while it waited gives its slots back.
func TestClientThatLeft(t *testing.T) {
	run(t, Config{Slots: 2}, func(t *testing.T, q *queueTest) {
		q.enter(t.Context(), "a1", 2)
		gone, here := &leaver{Context: t.Context()}, &leaver{Context: t.Context()}
		q.enter(gone, "a2", 2)
		q.enter(here, "b1", 2)
		gone.left.Store(true)
		q.want(t, "a1")
		q.leave(2)
		q.want(t, "a2:gone b1")
		q.leave(2)
	})
}

func TestNilGateAdmitsEveryCheck(t *testing.T) {
	t.Parallel()
	var g *Gate
	if err := g.Enter(t.Context(), 1, 1); err != nil {
		t.Error(err)
	}
	g.Leave(1)
}

func TestEnterAllocatesNothingWhileSlotsAreFree(t *testing.T) {
	g, ctx := New(Config{}), t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if err := g.Enter(ctx, 7, 3); err != nil {
			t.Error(err)
		}
		g.Leave(3)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Many goroutines of several tenants, with weights and contexts that end: the
// weight in service never exceeds the slots, and every check comes to an end.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const slots, goroutines, rounds = 8, 64, 300
	g := New(Config{Slots: slots, Waiting: 40})
	var inService, entered, full, gone atomic.Int64
	var wait sync.WaitGroup
	for i := range goroutines {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				ctx, cancel := context.WithCancel(context.Background())
				weight := 1 + random.IntN(slots)*random.IntN(2)
				if random.IntN(4) == 0 {
					go cancel()
				}
				switch err := g.Enter(ctx, uint32(i%5), weight); {
				case err == nil:
					if n := inService.Add(int64(weight)); n > slots {
						t.Errorf("weight %d in service", n)
					}
					entered.Add(1)
					inService.Add(-int64(weight))
					g.Leave(weight)
				case errors.Is(err, ErrOverloaded):
					full.Add(1)
				default:
					gone.Add(1)
				}
				cancel()
			}
		})
	}
	wait.Wait()
	s := g.Status()
	if s.InService != 0 || s.Waiting != 0 || s.Overloaded != full.Load() || len(g.queues) != 0 {
		t.Errorf("at the end: %+v, %d queues, %d turned away", s, len(g.queues), full.Load())
	}
	if entered.Load()+full.Load()+gone.Load() != goroutines*rounds || entered.Load() == 0 {
		t.Errorf("%d entered, %d full, %d gone", entered.Load(), full.Load(), gone.Load())
	}
}

func BenchmarkGate(b *testing.B) {
	for _, tenants := range []int{0, 1, 100} {
		b.Run("waiting="+strconv.Itoa(tenants), func(b *testing.B) {
			g, ctx := New(Config{Slots: 4, Waiting: 1 << 20}), context.Background()
			b.ReportAllocs()
			b.SetParallelism(max(1, 64*min(tenants, 1)))
			var next atomic.Uint32
			b.RunParallel(func(p *testing.PB) {
				tenant := next.Add(1) % uint32(max(tenants, 1))
				for p.Next() {
					if g.Enter(ctx, tenant, 1) == nil {
						g.Leave(1)
					}
				}
			})
		})
	}
}
