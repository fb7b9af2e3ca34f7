//go:build !quick

package redis_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// The script draws as the reference does: random draws, settlements, charges,
// refunds and resets, with a clock that also goes back.
func TestDraw(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	l := open(t, redis.Config{URL: servertest.Redis(t), Now: c.Now})
	seed := testseed.Seed(t)
	for n := range 300 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		c.Set(limitertest.Start + r.Int64N(1_000_000))
		store := limitertest.NewStore(c.Now)
		m := drawnLimit(r).Compile(1)
		key := enforcement.Key{Tenant: uint32(n), Cell: 3, Partition: [16]byte{1, byte(n)}}
		var lots [2]enforcement.Lot
		start := int64(0)
		for step := range 40 {
			by := r.Int64N(2 * m.Window / 20)
			if r.IntN(30) == 0 {
				by = -by
			}
			c.Set(c.Now() + by)
			if r.IntN(3) == 0 {
				d := enforcement.Draw{
					Home: "07", Key: key, Meter: m, Rev: 1 + r.Int64N(20)/19, Start: start,
					Want: r.Int64N(200), Least: 4, Part: 1 + r.Int64N(6), Lots: lots,
				}
				for i := range d.Lots {
					d.Lots[i].Spent, d.Lots[i].Back = r.Int64N(40), r.Int64N(40)
				}
				ours, theirs := make([]enforcement.Drawn, 1), make([]enforcement.Drawn, 1)
				l.Draw(t.Context(), []enforcement.Draw{d}, ours)
				store.Draw(t.Context(), []enforcement.Draw{d}, theirs)
				if ours[0].Err != nil || !sameDrawn(&ours[0], &theirs[0]) {
					t.Fatalf("seed %d, sequence %d, step %d: draw %+v of %+v\nscript    %+v\nreference %+v", seed, n, step, d, m, ours[0], theirs[0])
				}
				if ours[0].Units > 0 {
					lots = [2]enforcement.Lot{lots[1], {Until: ours[0].Until}}
				}
				continue
			}
			req := request(enforcement.Charge{Key: key, Meter: m, Rev: 1 + r.Int64N(60)/59, Cost: r.Int64N(60)})
			req.Mode = []enforcement.Mode{
				enforcement.Enforce, enforcement.Enforce, enforcement.Enforce, enforcement.Peek, enforcement.Force,
				enforcement.Refund, enforcement.Reset,
			}[r.IntN(7)]
			if req.Mode > enforcement.Peek && r.IntN(4) > 0 {
				req.Mode = enforcement.Enforce
			}
			ours, theirs := mustTake(t, l, req), mustTake(t, store, req)
			got, want := ours.Charges[0].State, theirs.Charges[0].State
			if ours.Verdict != theirs.Verdict || got.A != want.A || got.B != want.B || got.T != want.T {
				t.Fatalf("seed %d, sequence %d, step %d: %s of %d by %+v\nscript    %s %+v\nreference %s %+v",
					seed, n, step, req.Mode, req.Charges[0].Cost, m, ours.Verdict, got, theirs.Verdict, want)
			}
			if ours.Verdict == enforcement.Granted && req.Mode == enforcement.Enforce && req.Charges[0].Cost > 0 {
				start = ours.Charges[0].State.T
			}
		}
	}
}

func drawnLimit(r *rand.Rand) enforcement.Limit {
	limit := enforcement.Limit{Quota: 100 + r.Int64N(2000), Window: time.Duration(1000+r.IntN(20_000)) * time.Millisecond}
	switch r.IntN(3) {
	case 0:
		limit.Algorithm, limit.Anchor = enforcement.FixedWindow, enforcement.Anchor(r.IntN(2))
	case 1:
		limit.Algorithm, limit.Anchor = enforcement.SlidingWindowCounter, enforcement.Anchor(r.IntN(2))
	default:
		limit.Algorithm, limit.Burst = enforcement.TokenBucket, 100+r.Int64N(2000)
	}
	return limit
}

func sameDrawn(a, b *enforcement.Drawn) bool {
	return a.At == b.At && a.Units == b.Units && a.Until == b.Until &&
		a.State.Rev == b.State.Rev && a.State.A == b.State.A && a.State.B == b.State.B && a.State.T == b.State.T
}

// A draw works after the server lost its script, and names what it could not do.
func TestDrawWithoutTheScript(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL()})
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: time.Hour}.Compile(1)
	first := mustTake(t, l, request(charge(5, m, 1)))
	draw := func() enforcement.Drawn {
		drawn := make([]enforcement.Drawn, 1)
		l.Draw(context.Background(), []enforcement.Draw{
			{Home: "07", Key: key(5), Meter: m, Rev: 1, Start: first.Charges[0].State.T, Want: 10, Least: 4, Part: 2},
		}, drawn)
		return drawn[0]
	}
	for range 2 {
		if err := client(t, server.URL()).ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if d := draw(); d.Err != nil || d.Units != 10 {
			t.Fatalf("drew %+v", d)
		}
	}
	if got := mustTake(t, l, request(charge(5, m, 0))).Charges[0].State.A; got != 21 {
		t.Fatalf("%d are used, want 21", got)
	}
	server.Stop()
	if d := draw(); d.Err == nil {
		t.Fatal("a draw from a server that is gone has no error")
	}
}
