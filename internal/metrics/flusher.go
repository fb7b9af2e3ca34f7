package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
)

// FlusherConfig configures a Flusher. The zero value is usable.
type FlusherConfig struct {
	// Node is the ID of this process. No other process may ever use the same ID, even after
	// this one has ended. Default: a new UUID.
	Node string
	// Interval is the time between two flushes. Default: 1 s.
	Interval time.Duration
	// SketchBudget is the total weight of the sketches that one flush writes before their minute is
	// over. One key of a sketch has the weight 1. A flush exceeds the budget if otherwise some
	// changes would stay unwritten for longer than SketchInterval. Default: 2,000, which is about
	// 200 kB.
	SketchBudget int
	// SketchInterval is the longest time for which a change of a sketch stays unwritten. When
	// the minute of the sketch ends, the next flush writes it. Default: 10 s.
	SketchInterval time.Duration
	// Timeout is the maximum time for writing one batch. Default: 10 s.
	Timeout time.Duration
	// StopTimeout is the maximum duration of the last flush, which begins when the context of
	// Run ends. Default: 5 s.
	StopTimeout time.Duration
	// MaxRows is the maximum number of rows in the backlog, which grows while the database is
	// unavailable. If the backlog has more rows, the Flusher combines or drops rows (see fold). A
	// row takes about 320 bytes; one key of a sketch counts as one row. Default: 100,000, which is
	// 32 MB.
	MaxRows int
	// Logger logs the first of several consecutive failed flushes, and the first success after
	// them. Default: no logging.
	Logger *slog.Logger
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// Bounds of one batch, so that its transaction does not take long. batchRows and batchRefusals are
// numbers of rows. batchWeight is the total weight of its sketches (see weightOf).
const (
	batchRows     = 2_000
	batchWeight   = 20_000
	batchRefusals = 500
)

// longestPause is the maximum time between two attempts to write a batch.
const longestPause = 5 * time.Second

// A Flusher writes the counts of a Recorder to a Store, each decision exactly once.
//
// The Flusher sends a batch repeatedly until the Store confirms it. The Store has stored the number
// of the node's last batch. If only the confirmation was lost, the Store therefore does not add the
// batch again. While a batch is repeated, new counts wait in memory. If the process crashes, the
// unwritten counts are lost. While the database is available, these are the counts of at most one
// interval.
type Flusher struct {
	recorder *Recorder
	store    Store
	cfg      FlusherConfig

	sending sync.Mutex // one batch at a time

	mu      sync.Mutex
	waiting waiting
	frozen  *Batch // the batch that send is sending or will send next; nil after the Store has confirmed it
	// since is the time at which the oldest rows of waiting were drained, and frozenSince is the
	// same for frozen. Status reports the earlier of the two.
	since, frozenSince time.Time
	seq                int64
	state              FlushState
	failing            int // number of consecutive failed flushes
}

// NewFlusher returns a Flusher that writes the counts of r to s. A Recorder must not have two
// Flushers.
func NewFlusher(r *Recorder, s Store, c FlusherConfig) *Flusher {
	c.Node = cmp.Or(c.Node, uuid.NewString())
	c.Interval, c.SketchInterval = cmp.Or(c.Interval, time.Second), cmp.Or(c.SketchInterval, 10*time.Second)
	c.Timeout, c.StopTimeout = cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.StopTimeout, 5*time.Second)
	c.SketchBudget, c.MaxRows = cmp.Or(c.SketchBudget, 2_000), cmp.Or(c.MaxRows, 100_000)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Flusher{recorder: r, store: s, cfg: c, waiting: newWaiting()}
}

// Run flushes every interval until ctx ends. Then it flushes everything that is left, within
// StopTimeout. Run drains the Recorder every interval, even while it sends a batch. Otherwise the
// memory of the Recorder would grow while the database is slow.
func (f *Flusher) Run(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	var sent chan struct{} // closed when the running call of send ends; nil if no call is running
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
					_ = f.send(ctx, false) // sendOne records and logs the error
				}()
			}
		}
	}
}

// Flush writes everything that was counted before the call, including sketches that are not
// due.
func (f *Flusher) Flush(ctx context.Context) error {
	f.collect()
	return f.send(ctx, true)
}

// finish does the last flush, after ctx has ended.
func (f *Flusher) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.StopTimeout)
	defer cancel()
	for {
		err := f.Flush(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			f.cfg.Logger.Error("counts are lost: they could not be written before the shutdown", "rows", f.Status().WaitingRows, "error", err)
			return
		}
		_ = retry.Wait(ctx, retry.Jitter(100*time.Millisecond))
	}
}

// pause returns the time to wait after a flush before the next attempt. After a success, the time
// is 0. It doubles with each consecutive failure, up to longestPause, and has jitter.
func (f *Flusher) pause() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing == 0 {
		return 0
	}
	return retry.Jitter(min(f.cfg.Interval<<min(f.failing, 10), longestPause))
}

// collect drains the Recorder into the backlog. If the backlog then has more than MaxRows rows,
// collect combines or drops rows (see fold).
func (f *Flusher) collect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// f.mu is held during the drain, so that PendingRefusal always finds a denial either in the
	// Recorder or in the backlog
	d := f.recorder.drain()
	d.together()
	now := f.cfg.Now()
	if len(d.counts)+len(d.sketches)+len(d.refusals) > 0 && f.since.IsZero() {
		f.since = now
	}
	notKept, allowedNotKept := f.waiting.take(d, now)
	f.state.NotKept += notKept
	f.state.AllowedNotKept += allowedNotKept
	f.state.Folded += d.folded + f.waiting.fold(f.cfg.MaxRows, now)
	f.waiting.allow(f.cfg.SketchBudget, int(f.cfg.SketchInterval/f.cfg.Interval))
}

// send sends batches as long as the backlog has counts, or sketches that are due. If all is set, it
// sends batches until the backlog is empty. It stops at the first error.
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

// plainer replaces the batch b after the Store has rejected b as invalid. The new batch has the
// same sums, and no names, sketches and denials. Otherwise one invalid row would block all later
// counts. The new batch has the same number as b, because the Store has added nothing of b.
func (f *Flusher) plainer(b *Batch, err error) {
	f.cfg.Logger.Error("the database rejected a batch of counts; it is sent again without names, sketches and denials",
		"batch", b.Seq, "error", err)
	for i := range b.Refusals {
		if b.Refusals[i].Allowed {
			f.state.AllowedNotKept++
		} else {
			f.state.NotKept++
		}
	}
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

// freeze returns the batch to send next. If the Store has not confirmed the previous batch, freeze
// returns that batch again. Otherwise it makes a batch from the backlog, or returns nil if nothing
// in the backlog is due. If all is set, everything is due.
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

// rows returns the number of rows in the backlog. The caller must hold f.mu.
func (f *Flusher) rows() int {
	n := len(f.waiting.counts) + len(f.waiting.refusals) + f.waiting.unwritten()
	if f.frozen != nil {
		n += len(f.frozen.Counts) + len(f.frozen.Sketches) + len(f.frozen.Refusals)
	}
	return n
}

// Status returns the current state of the Flusher.
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

// PendingRefusal returns the kept denial with this decision ID if it is not in the Store yet.
// Callers must first call PendingRefusal and then read the Store. In the other order, the denial
// could be written between the two calls, and then neither call would find it.
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
