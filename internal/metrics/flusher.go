package metrics

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/problem"
)

// FlusherConfig of a Flusher; the zero value is usable.
type FlusherConfig struct {
	// Node is the process that counts. It must never be used again, by whatever
	// process: default a new UUID.
	Node string
	// Interval between two flushes. Default 1 s.
	Interval time.Duration
	// SketchBudget is how much of the changed sketches is written with every flush
	// while their minute lasts, by the rows that a sketch weighs: one a key of a
	// top list. A small system writes all of them. Default 2,000: some 200 kB.
	SketchBudget int
	// SketchInterval bounds how long a sketch stays unwritten beyond the budget,
	// where those go first that wait longest; when its minute is over it is
	// written at once. Default 10 s.
	SketchInterval time.Duration
	// Timeout of one batch. Default 10 s.
	Timeout time.Duration
	// StopTimeout bounds the last flush, when Run's context has ended. Default 5 s.
	StopTimeout time.Duration
	// MaxRows bounds what waits while the database is away, in rows of about 320
	// bytes; a key of a sketch is as much as one. Default 100,000: 32 MB.
	MaxRows int
	// Logger hears when flushes begin to fail and when they succeed again.
	// Default: silent.
	Logger *slog.Logger
	// Now is the clock by which a minute is over. Default time.Now.
	Now func() time.Time
}

// Bounds of one batch, so that no transaction takes long: rows by number,
// sketches by weight.
const (
	batchRows     = 2_000
	batchWeight   = 20_000
	batchRefusals = 500
)

// longestPause between two tries while the database is away.
const longestPause = 5 * time.Second

// A Flusher brings what a Recorder counted to a Store: every decision once.
//
// What was drained waits in memory. A batch of it is frozen, with the next
// number, and sent until the Store has it: the Store knows the number, so that
// a batch whose answer was lost is not added twice. New counts gather behind it
// meanwhile. What was counted and not flushed is lost with the process: at most
// an interval's counts while the database is there, nothing when Run ends in
// time.
type Flusher struct {
	recorder *Recorder
	store    Store
	cfg      FlusherConfig

	sending sync.Mutex // one batch at a time

	mu      sync.Mutex
	waiting waiting
	frozen  *Batch // sent, or about to be, and not acknowledged
	// since is when the oldest of what waits, and of frozen, was drained.
	since, frozenSince time.Time
	seq                int64
	state              FlushState
	failing            int // flushes one after the other
}

// NewFlusher makes the one Flusher of a Recorder. Run runs it.
func NewFlusher(r *Recorder, s Store, c FlusherConfig) *Flusher {
	if c.Node == "" {
		c.Node = uuid.NewString()
	}
	for _, d := range []struct {
		value   *time.Duration
		usually time.Duration
	}{
		{&c.Interval, time.Second},
		{&c.SketchInterval, 10 * time.Second},
		{&c.Timeout, 10 * time.Second},
		{&c.StopTimeout, 5 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.usually
		}
	}
	if c.SketchBudget <= 0 {
		c.SketchBudget = 2_000
	}
	if c.MaxRows <= 0 {
		c.MaxRows = 100_000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Flusher{recorder: r, store: s, cfg: c, waiting: newWaiting()}
}

// Run flushes every interval until ctx ends, and then all that is left, within
// StopTimeout. It is drained every interval also while a flush does not end, so
// that memory is bounded here and not in the Recorder.
func (f *Flusher) Run(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	var sent chan struct{} // closed when the sending that runs has ended; nil: none runs
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			if sent != nil {
				<-sent // its context has ended too
			}
			f.finish(ctx)
			return nil
		case <-sent:
			sent = nil
			next = time.Now().Add(f.pause())
		case <-tick.C:
			f.collect()
			if sent == nil && !time.Now().Before(next) {
				sent = make(chan struct{})
				go func() {
					defer close(sent)
					_ = f.send(ctx, false) // noted and logged there
				}()
			}
		}
	}
}

// Flush writes everything that was counted until now, sketches included.
func (f *Flusher) Flush(ctx context.Context) error {
	f.collect()
	return f.send(ctx, true)
}

// finish is the last flush. ctx has ended.
func (f *Flusher) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.StopTimeout)
	defer cancel()
	for {
		err := f.Flush(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			f.cfg.Logger.Error("counts are lost: they could not be written before the end", "rows", f.Status().WaitingRows, "error", err)
			return
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// sleep waits between half of d and d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// pause is how long nothing is sent: longer with each failure, and not the same
// on every node.
func (f *Flusher) pause() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing == 0 {
		return 0
	}
	d := min(f.cfg.Interval<<min(f.failing, 10), longestPause)
	return d/2 + rand.N(d/2+1)
}

// collect moves what was counted into what waits, and keeps that within its
// bounds.
func (f *Flusher) collect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.recorder.drain() // with f.mu held, so that a refusal is always found in one of both
	d.together()
	now := f.cfg.Now()
	if len(d.counts)+len(d.sketches)+len(d.refusals) > 0 && f.since.IsZero() {
		f.since = now
	}
	f.state.NotKept += f.waiting.take(d, now)
	f.state.Folded += d.folded + f.waiting.fold(f.cfg.MaxRows, now)
	f.waiting.allow(f.cfg.SketchBudget, int(f.cfg.SketchInterval/f.cfg.Interval))
}

// send sends batches until nothing is due: with all, everything.
func (f *Flusher) send(ctx context.Context, all bool) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	for {
		b := f.freeze(all)
		if b == nil {
			return nil
		}
		if err := f.sendOne(ctx, b); err != nil {
			return err
		}
	}
}

func (f *Flusher) sendOne(ctx context.Context, b *Batch) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	err := f.store.AddCounts(ctx, *b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		if f.failing > 0 {
			f.cfg.Logger.Info("counts are written again", "failed", f.failing)
		}
		f.frozen, f.frozenSince, f.failing = nil, time.Time{}, 0
		f.state.Flushed++
		f.state.FlushedAt, f.state.FailingSince, f.state.Failure = f.cfg.Now(), time.Time{}, nil
		f.waiting.forget(f.cfg.Now())
		return nil
	}
	if f.failing == 0 {
		f.cfg.Logger.Warn("counts cannot be written; they wait in memory", "rows", f.rows(), "error", err)
		f.state.FailingSince = f.cfg.Now()
	}
	f.failing++
	f.state.Failed++
	f.state.Failure = err
	if problem.Is(err, problem.Invalid) {
		f.plainer(b, err)
	}
	return err
}

// plainer takes out of a batch what a Store may not be able to keep: one
// refusal that cannot be stored must not stop all counts. The Store has said
// that it changed nothing, so the batch may keep its number.
func (f *Flusher) plainer(b *Batch, err error) {
	f.cfg.Logger.Error("a batch of counts cannot be stored; it goes on without names, sketches and refusals", "batch", b.Seq, "error", err)
	f.state.NotKept += int64(len(b.Refusals))
	f.state.Folded += int64(len(b.Sketches))
	plain := *b
	plain.Sketches, plain.Refusals = nil, nil
	plain.Counts = slices.Clone(b.Counts)
	for i := range plain.Counts {
		if r := &plain.Counts[i]; r.Kind != KindTotal {
			r.Name = foldedName
		}
	}
	f.frozen = &plain
}

// freeze gives the batch to send: the one that was not acknowledged, or a new
// one of what is due; nil when nothing is.
func (f *Flusher) freeze(all bool) *Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != nil {
		return f.frozen
	}
	b := Batch{Node: f.cfg.Node, Seq: f.seq + 1}
	f.waiting.give(&b, f.cfg.Now(), f.cfg.SketchInterval, all)
	if len(b.Counts)+len(b.Sketches)+len(b.Refusals) == 0 {
		return nil
	}
	f.seq++
	f.frozen, f.frozenSince = &b, f.since
	if len(f.waiting.counts)+len(f.waiting.refusals) == 0 {
		f.since = time.Time{}
	}
	return f.frozen
}

// rows that wait. f.mu is held.
func (f *Flusher) rows() int {
	n := len(f.waiting.counts) + len(f.waiting.refusals) + f.waiting.unwritten()
	if f.frozen != nil {
		n += len(f.frozen.Counts) + len(f.frozen.Sketches) + len(f.frozen.Refusals)
	}
	return n
}

// Status tells how flushing goes.
func (f *Flusher) Status() FlushState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	s.WaitingRows, s.WaitingRefusals = f.rows(), len(f.waiting.refusals)
	if f.frozen != nil {
		s.WaitingRefusals += len(f.frozen.Refusals)
	}
	oldest := f.frozenSince
	if oldest.IsZero() {
		oldest = f.since
	}
	if !oldest.IsZero() {
		s.Waiting = max(0, f.cfg.Now().Sub(oldest))
	}
	return s
}

// PendingRefusal gives a refusal that is not in the Store yet, as far as is known.
// Ask it before the Store: in between it may have arrived there.
func (f *Flusher) PendingRefusal(id [16]byte) (Refusal, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lists := [][]Refusal{f.waiting.refusals}
	if f.frozen != nil {
		lists = append(lists, f.frozen.Refusals)
	}
	for _, list := range lists {
		if i := slices.IndexFunc(list, func(r Refusal) bool { return r.ID == id }); i >= 0 {
			return list[i], true
		}
	}
	return f.recorder.PendingRefusal(id)
}
