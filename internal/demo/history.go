package demo

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// Rows of minutes are kept for two days and roll up to hours. So what is older than a day
// counts in the first minute of its hour: the hour is the same, with a sixtieth of the
// rows. The limiter uses the true instants.
const (
	byTheMinute  = 25 * time.Hour // or a quarter of a shorter history
	keptRefusals = 24 * time.Hour
	// flushEvery is the time that one batch covers where counts are by minute, flushEveryOlder
	// before that.
	flushEvery      = 5 * time.Minute
	flushEveryOlder = 6 * time.Hour
)

// A history decides the requests of a past time, with the real engine, on a limiter and with a
// recorder whose clock is that time.
type history struct {
	world           *world
	boundary, until time.Time
	now             atomic.Int64 // the clock, in microseconds since the epoch
	stamp           int64        // when the decision being made counts, in milliseconds
	ids             *rand.Rand
	engine          *enforcement.Engine

	recorder *metrics.Recorder
	flusher  *metrics.Flusher
	behind   *behind
	events   []event
	decision enforcement.Decision
}

// newHistory returns a history that writes into a store. What is before the boundary counts in the
// first minute of its hour. observe, unless nil, receives every decision.
func newHistory(w *world, newLimiter func(now func() int64) enforcement.Limiter, s metrics.Store, boundary, end time.Time,
	observe func(*enforcement.Decision),
) *history {
	h := &history{world: w, boundary: boundary, until: end, ids: rand.New(rand.NewPCG(w.seed, 1))}
	clock := func() time.Time { return time.UnixMicro(h.now.Load()) }
	node := "demo-" + uuid.NewString()
	h.recorder = metrics.NewRecorder(metrics.Config{Node: node, Now: func() time.Time { return time.UnixMilli(h.stamp) }})
	h.behind = newBehind(s, end.Add(-keptRefusals))
	h.flusher = metrics.NewFlusher(h.recorder, h.behind, metrics.FlusherConfig{Node: node, Now: clock, MaxRows: 1 << 20})
	h.engine = enforcement.NewEngine(h.recorder.InstrumentLimiter(newLimiter(h.now.Load)), enforcement.Config{
		Now: clock, NewID: h.newID, Recorder: observed{h.recorder, observe},
	})
	return h
}

// observed passes decisions to a second function.
type observed struct {
	*metrics.Recorder
	observe func(*enforcement.Decision)
}

func (o observed) Record(d *enforcement.Decision) {
	o.Recorder.Record(d)
	if o.observe != nil {
		o.observe(d)
	}
}

// newID returns a UUIDv7 of the simulated time.
func (h *history) newID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(h.stamp)<<16|h.ids.Uint64()&0x0fff)
	binary.BigEndian.PutUint64(id[8:], h.ids.Uint64())
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// tell decides the requests in [from, to), whole seconds, and writes the counts. who returns the
// tenants by slug at an instant; between is called at each flush.
func (h *history) tell(ctx context.Context, from, to time.Time, who func(time.Time) map[string]*enforcement.Subject,
	between func(context.Context) error,
) error {
	next := from
	for at := from; at.Before(to); at = at.Add(time.Second) {
		if !at.Before(next) {
			err := h.flush(ctx)
			if err == nil {
				err = between(ctx)
			}
			if err != nil {
				return err
			}
			next = at.Add(flushEvery)
			if at.Before(h.boundary) {
				next = at.Add(flushEveryOlder)
			}
		}
		subjects := who(at)
		age := h.until.Sub(at)
		h.events = h.world.second(h.events[:0], at, age)
		for i := range h.events {
			e := &h.events[i]
			s := subjects[h.world.crowds[e.crowd].tenant]
			if s == nil {
				continue
			}
			h.now.Store(e.at)
			h.stamp = e.at / 1_000
			if at.Before(h.boundary) {
				hour := at.Truncate(time.Hour).Unix()
				h.stamp = (hour+at.Unix()%60)*1_000 + e.at/1_000%1_000
			}
			h.engine.Decide(ctx, s, &e.check, &h.decision)
		}
	}
	h.now.Store(to.UnixMicro())
	return h.flush(ctx)
}

// flush passes the counts to behind, which writes them.
func (h *history) flush(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.flusher.Flush(ctx)
}

// end waits until everything is written.
func (h *history) end() error { return h.behind.end() }

// behind is a store of counts that writes batches in a goroutine, in order, while the next ones
// are made. It drops denials that are too old.
type behind struct {
	metrics.Store
	kept    time.Time // refusals from then on
	batches chan work
	failed  chan struct{} // closed with the first error
	err     error         // once failed or ended
	ended   chan struct{}
}

type work struct {
	ctx   context.Context
	batch metrics.Batch
}

func newBehind(s metrics.Store, kept time.Time) *behind {
	b := &behind{Store: s, kept: kept, batches: make(chan work, 4), failed: make(chan struct{}), ended: make(chan struct{})}
	go b.run()
	return b
}

// AddCounts queues a batch. An error is that of an earlier batch.
func (b *behind) AddCounts(ctx context.Context, batch metrics.Batch) error {
	kept := batch.Refusals[:0]
	for i := range batch.Refusals {
		if !batch.Refusals[i].At.Before(b.kept) {
			kept = append(kept, batch.Refusals[i])
		}
	}
	batch.Refusals = kept
	select {
	case b.batches <- work{context.WithoutCancel(ctx), batch}:
		return nil
	case <-b.failed:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *behind) run() {
	defer close(b.ended)
	for w := range b.batches {
		if b.err != nil {
			continue
		}
		if b.err = b.write(w); b.err != nil {
			close(b.failed)
		}
	}
}

// write writes one batch. Its number prevents a double addition.
func (b *behind) write(w work) (err error) {
	for range 5 {
		if err = b.Store.AddCounts(w.ctx, w.batch); !problem.Is(err, problem.Unavailable) {
			return err
		}
	}
	return err
}

func (b *behind) end() error {
	close(b.batches)
	<-b.ended
	return b.err
}
