//go:build !quick

package metrics_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/servertest"
)

// A flushing is a Flusher that runs while decisions are made, until stop.
type flushing struct {
	*metrics.Flusher
	ledger *ledger
	clock  *clock
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	quit   chan struct{}
	busy   sync.WaitGroup
}

func startFlushing(t *testing.T, s metrics.Store, c *clock, l *ledger) *flushing {
	t.Helper()
	r := metrics.NewRecorder(metrics.Config{Now: c.Now})
	f := &flushing{
		Flusher: metrics.NewFlusher(r, s, metrics.FlusherConfig{
			Interval: 5 * time.Millisecond, Timeout: patient, StopTimeout: patient, Now: c.Now,
		}),
		ledger: l, clock: c, t: t, ended: make(chan error, 1), quit: make(chan struct{}),
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(t.Context())
	go func() { f.ended <- f.Run(ctx) }()
	for g := range 2 {
		f.busy.Go(func() {
			for i := 0; ; i++ {
				l.decide(r, uint32(g*3+i%5+1), c.Now(), i%4 != 0)
				select {
				case <-f.quit:
					return
				case <-time.After(time.Millisecond): // some thousands a second would say no more
				}
			}
		})
	}
	return f
}

// await waits for a state, for as long as a busy machine may take.
func (f *flushing) await(what string, reached func(metrics.FlushState) bool) {
	f.t.Helper()
	deadline := time.Now().Add(patient)
	for !reached(f.Status()) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%s did not come: %+v", what, f.Status())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// more waits until as many flushes succeeded as there were, and some.
func (f *flushing) more(n int64) {
	f.t.Helper()
	want := f.Status().Flushed + n
	f.await("a flush", func(s metrics.FlushState) bool { return s.Flushed >= want })
}

// fails waits until as many flushes failed as there were, and some.
func (f *flushing) fails(n int64) {
	f.t.Helper()
	want := f.Status().Failed + n
	f.await("a failure", func(s metrics.FlushState) bool { return s.Failed >= want })
}

// stop ends the decisions, and then Run.
func (f *flushing) stop() {
	f.t.Helper()
	close(f.quit)
	f.busy.Wait()
	f.cancel()
	if err := <-f.ended; err != nil {
		f.t.Error(err)
	}
	if s := f.Status(); s.WaitingRows != 0 || s.Folded != 0 {
		f.t.Errorf("in the end: %+v", s)
	}
}

// Postgres is killed again and again while decisions are made, and comes back:
// in the end it has each of them once.
func TestFlusherOverKillsOfPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	s, c, l := opened(t, server.URL()), newClock(), newLedger()
	f := startFlushing(t, s, c, l)
	for range 3 {
		f.more(3)
		server.Stop() // as a crash: whatever is open is lost
		f.fails(2)
		c.Add(3 * time.Minute)
		server.Start()
	}
	f.more(2)
	f.stop()
	l.check(t, s, c.Now())
}

// Postgres hangs in the middle of a write: nothing is lost, nothing is added twice, and
// later decisions wait in memory.
func TestFlusherWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	s, c, l := opened(t, server.URL()), newClock(), newLedger()
	f := startFlushing(t, s, c, l)
	for range 2 {
		f.more(3)
		server.Pause()
		f.await("waiting rows", func(s metrics.FlushState) bool {
			c.Add(time.Second) // what waits grows old
			return s.WaitingRows >= 10 && s.Waiting > 0
		})
		server.Resume()
	}
	f.more(2)
	f.stop()
	l.check(t, s, c.Now())
}

// Answers to COMMIT are lost, and connections are cut at any time.
func TestFlusherBehindABadNetwork(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	proxy := servertest.StartProxy(t, server.URL())
	direct := opened(t, server.URL())
	s, c, l := opened(t, proxy.URL()), newClock(), newLedger()
	f := startFlushing(t, s, c, l)
	for range 5 {
		<-proxy.Lose(servertest.Loss{Request: "commit"})
		f.more(1)
		<-proxy.Lose(servertest.Loss{Request: "counts_minutes"})
		f.more(1)
		proxy.Cut()
		f.fails(1)
		c.Add(time.Minute)
		proxy.Heal()
		f.more(1)
	}
	f.stop()
	l.check(t, direct, c.Now())
}

// Three nodes write to one Postgres, which is killed once.
func TestThreeNodesAddUp(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	c, l := newClock(), newLedger()
	s := opened(t, server.URL())
	nodes := []*flushing{
		startFlushing(t, s, c, l), startFlushing(t, opened(t, server.URL()), c, l), startFlushing(t, opened(t, server.URL()), c, l),
	}
	for i, f := range nodes {
		f.more(3)
		if i == 1 {
			server.Stop()
			f.fails(1)
			server.Start()
		}
	}
	for _, f := range nodes {
		f.more(2)
		f.stop()
	}
	l.check(t, s, c.Now())
}
