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

// Rows of minutes are kept for only two days. Therefore counts that are older than a day are
// written to the first minute of their hour. The sums of hours stay the same, with a sixtieth
// of the rows. The limiter still decides at the true times.
const (
	byTheMinute  = 25 * time.Hour // if the history is shorter than four times this, a quarter of its length is used instead
	keptRefusals = 24 * time.Hour
	// flushEvery is the simulated time between two batches after the boundary, where counts are by
	// minute. flushEveryOlder is this time before the boundary.
	flushEvery      = 5 * time.Minute
	flushEveryOlder = 6 * time.Hour
)

// A history decides the requests of a past time with the real engine. The limiter and the
// recorder use a simulated clock.
type history struct {
	users           *population
	boundary, until time.Time
	now             atomic.Int64 // time of the simulated clock, in microseconds since the epoch
	stamp           int64        // time at which the current decision is counted, in milliseconds since the epoch
	ids             *rand.Rand
	engine          *enforcement.Engine

	recorder *metrics.Recorder
	flusher  *metrics.Flusher
	behind   *behind
	events   []event
	decision enforcement.Decision
}

// newHistory returns a history that writes counts to the store s. It writes counts before the
// boundary to the first minute of their hour. If observe is not nil, the history calls it with
// every decision.
func newHistory(w *population, newLimiter func(now func() int64) enforcement.Limiter, s metrics.Store, boundary, end time.Time,
	observe func(*enforcement.Decision),
) *history {
	h := &history{users: w, boundary: boundary, until: end, ids: rand.New(rand.NewPCG(w.seed, 1))}
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

// An observed is a recorder that also calls observe with each decision.
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

// newID returns a UUIDv7 whose time is the simulated one. The engine uses it as the ID of a
// decision.
func (h *history) newID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(h.stamp)<<16|h.ids.Uint64()&0x0fff)
	binary.BigEndian.PutUint64(id[8:], h.ids.Uint64())
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// tell decides the requests of the time [from, to) and writes the counts. The function who returns
// the compiled tenants for a time, by slug. tell calls between after each flush.
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
		h.events = h.users.second(h.events[:0], at, age)
		for i := range h.events {
			e := &h.events[i]
			s := subjects[h.users.crowds[e.crowd].tenant]
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

// flush moves the counts of the recorder to behind, which writes them in the background.
func (h *history) flush(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.flusher.Flush(ctx)
}

// end waits until all counts are written.
func (h *history) end() error { return h.behind.end() }

// behind is a store that writes batches in a goroutine, in order, while the history decides the
// next requests. behind drops denials that are older than kept, because the store would soon delete
// them.
type behind struct {
	metrics.Store
	kept    time.Time // denials before this time are not written
	batches chan work
	failed  chan struct{} // closed at the first error
	err     error         // the first error; only valid after failed or ended is closed
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

// AddCounts queues a batch for writing. An error that it returns belongs to an earlier batch.
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

// write writes one batch, in up to five attempts while the store is unavailable. The store
// never adds a batch with the same number twice.
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
