package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/retry"
)

// Config of a Watcher; the zero value is usable.
type Config struct {
	// Poll is the interval between two reads of the revision; default 500ms.
	Poll time.Duration
	// FullReload is the interval between two reads of all rows, which show rows that vanished
	// without a tombstone; default 1h, negative: never.
	FullReload time.Duration
	// Timeout of a read of the revision. A load may take ten times as long. Default 5s.
	Timeout time.Duration
	// RetryMin and RetryMax bound the exponential, jittered wait between attempts while the source
	// is unavailable; default 500ms and 30s.
	RetryMin, RetryMax time.Duration
	// Compile has the options of Compile. The Watcher sets Full itself.
	Compile Options
	// Logger; default slog.Default.
	Logger *slog.Logger
	// Now; default time.Now.
	Now func() time.Time
	// OnSwap is called after each new snapshot is in force; it must not block. Default none.
	OnSwap func(*Snapshot, Report)
}

// How says how the node learned of a change.
type How string

// The ways of learning of a change.
const (
	byStart        How = "start"
	byNotification How = "notification"
	byPoll         How = "poll"
	byRefresh      How = "refresh" // this node asked, after an edit of its own
)

// Status is the state of a Watcher.
type Status struct {
	// Revision in force; 0 and Loaded false before the first one.
	Revision int64
	Loaded   bool
	// SwappedAt is when the snapshot came into force, ConfirmedAt when the source last confirmed
	// that it is the newest.
	SwappedAt, ConfirmedAt time.Time
	// Learnt is how the node learned of the last change.
	Learnt How
	// Listening: notifications are being listened for.
	Listening bool
	// Swaps is the number of snapshots that were put into force.
	Swaps int64
	// Held is why a newer state is held (errHeld), or nil.
	Held error
	// Err is the error of the last attempt, or nil.
	Err error
	// Problems in force.
	Problems int
}

// A Watcher keeps one Snapshot current. It is notified of changes and also polls the revision.
// While the source is unavailable, the last snapshot stays in force. An older revision never
// replaces a newer one.
type Watcher struct {
	source  Source
	cfg     Config
	log     *slog.Logger
	current atomic.Pointer[Snapshot]
	hint    chan struct{} // holds one: the source said that something changed
	turn    chan struct{} // holds one: the right to load and swap

	// With the turn only:
	rewound  bool      // a revision below ours was seen: increments are not trusted
	heldFull bool      // what is held was a whole world: increments go on beside it
	heldAt   int64     // the source's revision when it was last held
	fullDue  time.Time // when the whole world is read again
	lastFail string    // the error last logged

	mu      sync.Mutex // over what follows
	status  Status
	swapped chan struct{} // closed at the next swap
}

// NewWatcher returns a Watcher of source. It loads nothing before Run or Refresh.
func NewWatcher(source Source, cfg Config) *Watcher {
	cfg.Poll = cmp.Or(cfg.Poll, 500*time.Millisecond)
	if cfg.FullReload == 0 {
		cfg.FullReload = time.Hour
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.RetryMin = cmp.Or(cfg.RetryMin, 500*time.Millisecond)
	cfg.RetryMax = cmp.Or(cfg.RetryMax, 30*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Compile.Now == nil {
		cfg.Compile.Now = cfg.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Watcher{
		source: source, cfg: cfg, log: cfg.Logger,
		hint:    make(chan struct{}, 1),
		turn:    make(chan struct{}, 1),
		swapped: make(chan struct{}),
	}
}

// Current returns the snapshot in force, or nil before the first.
func (w *Watcher) Current() *Snapshot { return w.current.Load() }

// Status returns the state of the Watcher.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run loads all rows, retrying until the source is available, and then keeps the snapshot current
// until ctx ends, which is not an error.
func (w *Watcher) Run(ctx context.Context) error {
	var listener sync.WaitGroup
	defer listener.Wait()
	listener.Go(func() { w.listen(ctx) })

	how, retries := byStart, w.retries()
	for ctx.Err() == nil {
		err := w.sync(ctx, how, Options{})
		pause := retry.Jitter(w.cfg.Poll)
		if w.Current() == nil && err != nil {
			// Nothing can be served yet: the tries are spread, so that many nodes
			// starting at once do not press a source that is just coming back.
			pause = retries.Next()
		}
		how = w.pause(ctx, pause)
	}
	return nil
}

// pause waits for a notification or for the time to poll.
func (w *Watcher) pause(ctx context.Context, d time.Duration) How {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.hint:
		return byNotification
	case <-t.C:
		return byPoll
	case <-ctx.Done():
		return byPoll
	}
}

// listen receives notifications until ctx ends, and reconnects when they break off.
func (w *Watcher) listen(ctx context.Context) {
	retries := w.retries()
	for ctx.Err() == nil {
		w.set(func(s *Status) { s.Listening = true })
		began := time.Now()
		err := w.source.Notify(ctx, w.changed)
		w.set(func(s *Status) { s.Listening = false })
		if ctx.Err() != nil {
			return
		}
		w.log.Warn("snapshot: notifications broke off; polling goes on", "error", err)
		if time.Since(began) > w.cfg.RetryMax {
			retries.Reset()
		}
		w.changed() // what came meanwhile was not heard
		_ = retry.Wait(ctx, retries.Next())
	}
}

func (w *Watcher) retries() retry.Backoff {
	return retry.Backoff{First: w.cfg.RetryMin, Longest: w.cfg.RetryMax}
}

func (w *Watcher) changed() {
	select {
	case w.hint <- struct{}{}:
	default:
	}
}

// Refresh reads the source now and puts changes into force.
func (w *Watcher) Refresh(ctx context.Context) error { return w.sync(ctx, byRefresh, Options{}) }

// WaitFor returns once a snapshot of at least revision is in force; 0 waits for the first one. It
// reads the source at once, so that a node sees its own edits. If the source is unavailable, it
// waits until ctx ends. For a held state it returns errHeld at once.
func (w *Watcher) WaitFor(ctx context.Context, revision int64) error {
	for {
		w.mu.Lock()
		swapped, s := w.swapped, w.status
		w.mu.Unlock()
		if s.Loaded && s.Revision >= revision && s.Held == nil {
			return nil
		}
		err := w.Refresh(ctx)
		if c := w.Current(); err == nil && c != nil && c.Revision() >= revision {
			return nil
		}
		if !errors.Is(err, errHeld) {
			err = errors.Join(w.await(ctx, swapped), err)
			if ctx.Err() == nil {
				continue
			}
		}
		return fmt.Errorf("wait for revision %d: %w", revision, err)
	}
}

// await waits for the next swap, for at most the polling interval.
func (w *Watcher) await(ctx context.Context, swapped <-chan struct{}) error {
	t := time.NewTimer(w.cfg.Poll)
	defer t.Stop()
	select {
	case <-swapped:
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// sync brings the snapshot to the source's revision, one caller at a time.
func (w *Watcher) sync(ctx context.Context, how How, o Options) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.turn }()
	err := w.load(ctx, how, o)
	if ctx.Err() == nil {
		w.noteError(err)
	}
	return err
}

// load is sync for the caller whose turn it is.
func (w *Watcher) load(ctx context.Context, how How, o Options) (err error) {
	defer func() {
		if r := recover(); r != nil { // whatever rows there are, the last snapshot goes on
			err = fmt.Errorf("compile snapshot: panicked: %v", r)
		}
	}()
	current := w.current.Load()
	asking, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	revision, err := w.source.Revision(asking)
	if err != nil {
		return fmt.Errorf("read the revision: %w", err)
	}
	if current != nil {
		if done, err := w.settled(current, revision, how, &o); done {
			return err
		}
		if o.Full && !w.rewound && revision > current.revision {
			// First what changed, with its tombstones: the whole world has none, and
			// what somebody removed would look as if it had vanished.
			if err := w.take(ctx, current, revision, how, Options{}); err != nil {
				return err
			}
			current = w.current.Load()
		}
	}
	return w.take(ctx, current, revision, how, o)
}

// take loads, compiles and swaps.
func (w *Watcher) take(ctx context.Context, current *Snapshot, revision int64, how How, o Options) error {
	since := int64(0)
	if current == nil || o.Full || w.rewound {
		o.Full = true
	} else {
		since = current.revision
	}
	loading, cancel := context.WithTimeout(ctx, 10*w.cfg.Timeout)
	defer cancel()
	changes, err := w.source.Changes(loading, since)
	if err != nil {
		return fmt.Errorf("load changes since revision %d: %w", since, err)
	}
	compile := w.cfg.Compile
	compile.Full = o.Full || since == 0
	next, report := Compile(current, changes, compile)
	if report.Held != nil {
		w.rewound = w.rewound || changes.Revision < current.revision
		return w.hold(report.Held, revision, report.Full)
	}
	w.swap(next, report, how)
	return nil
}

// settled reports whether there is nothing to load.
func (w *Watcher) settled(current *Snapshot, revision int64, how How, o *Options) (done bool, err error) {
	if revision < current.revision {
		w.rewound = true
		return true, w.hold(fmt.Errorf("%w: the revision went back from %d to %d", errHeld, current.revision, revision), revision, true)
	}
	now := w.cfg.Now()
	if !o.Full && !w.rewound && revision == current.revision && w.cfg.FullReload > 0 && !now.Before(w.fullDue) {
		o.Full = true
		w.fullDue = now.Add(retry.Jitter(w.cfg.FullReload))
	}
	held := w.Status().Held
	switch {
	case o.Full:
		return false, nil
	case held != nil && (w.rewound || !w.heldFull):
		// It is tried again when something changes, not at each poll.
		return revision == w.heldAt && how == byPoll, held
	case revision == current.revision:
		w.set(func(s *Status) { s.ConfirmedAt = now })
		return true, nil
	}
	return false, nil
}

// hold keeps the snapshot in force and notes why.
func (w *Watcher) hold(why error, revision int64, full bool) error {
	before := w.Status().Held
	if before == nil || before.Error() != why.Error() {
		w.log.Error("snapshot: the new world is held; the last good one stays in force", "reason", why, "revision", revision)
	}
	w.heldAt, w.heldFull = revision, full
	w.set(func(s *Status) { s.Held = why })
	return why
}

// swap puts a snapshot into force.
func (w *Watcher) swap(next *Snapshot, report Report, how How) {
	now := w.cfg.Now()
	if report.Full {
		w.rewound = false
		w.fullDue = now.Add(retry.Jitter(max(w.cfg.FullReload, 0)))
	}
	before := w.current.Swap(next)
	w.mu.Lock()
	held := w.status.Held
	if report.Full || !w.heldFull {
		held = nil
	}
	w.status = Status{
		Revision: next.revision, Loaded: true, SwappedAt: now, ConfirmedAt: now, Learnt: how,
		Listening: w.status.Listening, Swaps: w.status.Swaps + 1, Held: held, Problems: next.ProblemCount(),
	}
	close(w.swapped)
	w.swapped = make(chan struct{})
	w.mu.Unlock()

	w.log.Info("snapshot: swapped", "revision", next.revision, "learnt", how, "full", report.Full,
		"plans", report.Plans, "tenants", report.Tenants, "keys", report.Keys, "problems", report.Problems)
	w.logProblems(before, next)
	if w.cfg.OnSwap != nil {
		w.cfg.OnSwap(next, report)
	}
}

// logProblems logs new problems, a few of them by name.
func (w *Watcher) logProblems(before, next *Snapshot) {
	const byName = 10
	fresh := 0
	for what, p := range next.faults {
		if before != nil {
			if old, ok := before.faults[what]; ok && old.Revision == p.Revision {
				continue
			}
		}
		if fresh++; fresh <= byName {
			w.log.Error("snapshot: cannot be used as stored", "kind", p.Kind, "id", p.ID, "name", p.Name,
				"error", p.Err, "last_good_kept", p.Kept)
		}
	}
	if fresh > byName {
		w.log.Error("snapshot: more cannot be used as stored", "count", fresh-byName)
	}
}

// noteError keeps the error for Status and logs it if it changed.
func (w *Watcher) noteError(err error) {
	if errors.Is(err, errHeld) {
		return // logged, and in Status.Held
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != w.lastFail {
		if err != nil {
			w.log.Warn("snapshot: the source is away", "error", err, "serving_revision", w.Status().Revision, "loaded", w.Current() != nil)
		} else {
			w.log.Info("snapshot: the source is back")
		}
		w.lastFail = text
	}
	w.set(func(s *Status) { s.Err = err })
}

func (w *Watcher) set(f func(*Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.status)
}
