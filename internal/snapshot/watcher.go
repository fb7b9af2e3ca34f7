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

// Config configures a Watcher. The zero value is usable.
type Config struct {
	// Poll is the time between two reads of the revision. Default: 500 ms.
	Poll time.Duration
	// FullReload is the time between two full reloads, which read all rows. A full reload finds
	// rows that vanished without a tombstone. Default: 1 h; negative: never.
	FullReload time.Duration
	// Timeout is the maximum duration of a read of the revision. Reading rows may take ten
	// times as long. Default: 5 s.
	Timeout time.Duration
	// RetryMin is the pause after the first failed attempt, either to load the first snapshot or to
	// listen for notifications. The pause doubles after each further failure, up to RetryMax, and
	// has jitter. Default: 500 ms and 30 s.
	RetryMin, RetryMax time.Duration
	// Compile contains the options of Compile. The Watcher sets Full itself.
	Compile Options
	// Logger logs problems and errors. Default: slog.Default.
	Logger *slog.Logger
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// The Watcher calls OnSwap each time a new snapshot comes into use. OnSwap must not block.
	// Default: none.
	OnSwap func(*Snapshot, Report)
}

// How says what made the node read the revision: the start, a notification, a poll, or a call
// of Refresh.
type How string

// The values of How.
const (
	byStart        How = "start"
	byNotification How = "notification"
	byPoll         How = "poll"
	byRefresh      How = "refresh" // this node called Refresh, usually after its own edit
)

// Status is the state of a Watcher.
type Status struct {
	// Revision is the revision of the current snapshot. Before the first snapshot, Revision is 0 and Loaded is false.
	Revision int64
	Loaded   bool
	// SwappedAt is the time at which the current snapshot came into use. ConfirmedAt is the last
	// time at which the source confirmed that no newer revision exists.
	SwappedAt, ConfirmedAt time.Time
	// Learnt says how the node noticed the change that is in the current snapshot.
	Learnt How
	// Listening means that the node receives notifications of changes.
	Listening bool
	// Swaps is the number of snapshots that came into use since the start.
	Swaps int64
	// Held is the reason why the latest stored state was rejected; nil if it was accepted. Held
	// wraps errHeld.
	Held error
	// Err is the error of the last attempt to load; nil if it succeeded.
	Err error
	// Problems is the number of objects in the current snapshot whose stored rows are invalid.
	Problems int
}

// A Watcher keeps the current Snapshot up to date. The Watcher listens for notifications about
// changes and also polls the revision. While the source is unavailable, the last snapshot stays in
// use. A new snapshot never has a lower revision than the snapshot that it replaces.
type Watcher struct {
	source  Source
	cfg     Config
	log     *slog.Logger
	current atomic.Pointer[Snapshot]
	hint    chan struct{} // receives an element when something has changed; has room for one element
	turn    chan struct{} // used as a lock with a capacity of one: only the goroutine that has sent an element loads and swaps

	// Only the goroutine that holds turn may access the following fields.
	rewound  bool      // set if the revision of the source was lower than that of the snapshot; only a full reload is accepted after that
	heldFull bool      // set if the rejected state came from a full reload; changes since the snapshot are then still loaded
	heldAt   int64     // revision of the source at the last rejection
	fullDue  time.Time // time of the next full reload
	lastFail string    // the error that was logged last

	mu      sync.Mutex // guards the following fields
	status  Status
	swapped chan struct{} // closed at the next swap
}

// NewWatcher returns a Watcher of the rows in source. It loads nothing until Run or Refresh is
// called.
func NewWatcher(source Source, cfg Config) *Watcher {
	cfg.Poll = cmp.Or(cfg.Poll, 500*time.Millisecond)
	cfg.FullReload = cmp.Or(cfg.FullReload, time.Hour)
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

// Current returns the current snapshot, or nil before the first one is loaded.
func (w *Watcher) Current() *Snapshot { return w.current.Load() }

// Status returns the state of the Watcher.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run loads all rows. If this fails, Run tries again until it succeeds. Then it keeps the snapshot
// up to date until ctx ends. Run always returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	var listener sync.WaitGroup
	defer listener.Wait()
	listener.Go(func() { w.listen(ctx) })

	how, retries := byStart, w.retries()
	for ctx.Err() == nil {
		err := w.sync(ctx, how, Options{})
		pause := retry.Jitter(w.cfg.Poll)
		if w.Current() == nil && err != nil {
			// The first snapshot is not loaded yet. The pause between attempts grows, because
			// otherwise many nodes that start at the same time would overload a source that has
			// just become available.
			pause = retries.Next()
		}
		how = w.pause(ctx, pause)
	}
	return nil
}

// pause waits until a notification comes, d has passed, or ctx ends. It returns byNotification
// after a notification, and otherwise byPoll.
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

// listen receives notifications until ctx ends. If the connection is lost, it connects again.
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
		w.log.Warn("the connection for notifications of changes was lost; the node polls the database", "error", err)
		if time.Since(began) > w.cfg.RetryMax {
			retries.Reset()
		}
		w.changed() // notifications may have been lost while the node had no connection
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

// Refresh immediately reads the revision from the source, and loads what has changed.
func (w *Watcher) Refresh(ctx context.Context) error { return w.sync(ctx, byRefresh, Options{}) }

// WaitFor waits until the current snapshot has the given revision or a higher one. With the
// revision 0, it waits for the first snapshot. WaitFor first calls Refresh, so that a node
// immediately serves its own edits. If the source is unavailable, WaitFor waits until ctx ends. If
// the stored state is rejected, WaitFor immediately returns an error that wraps errHeld.
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

// await waits until swapped is closed, which happens when the next snapshot comes into use. It
// waits for at most the polling interval.
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

// sync loads all changes up to the latest revision. Only one goroutine at a time loads; other
// callers wait. If a new snapshot comes into use, sync stores how in Status.Learnt.
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

// load does the work of sync. The caller must hold w.turn.
func (w *Watcher) load(ctx context.Context, how How, o Options) (err error) {
	defer func() {
		if r := recover(); r != nil { // if a row causes a panic, the last snapshot stays in use
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
			// The changes are loaded before the full reload, because only the changes contain
			// tombstones. Without its tombstone, a deleted object would look as if the database had
			// lost it.
			if err := w.take(ctx, current, revision, how, Options{}); err != nil {
				return err
			}
			current = w.current.Load()
		}
	}
	return w.take(ctx, current, revision, how, o)
}

// take loads the changes since the snapshot current, or all rows for a full reload. It compiles
// them and brings the new snapshot into use.
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

// settled reports whether there is nothing to load. This is so if the current snapshot has the
// revision of the source, or if the state of this revision was rejected before. If a full reload is
// due, settled sets o.Full.
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
		// A poll does not load a rejected state again. A new revision or a call of Refresh does.
		return revision == w.heldAt && how == byPoll, held
	case revision == current.revision:
		w.set(func(s *Status) { s.ConfirmedAt = now })
		return true, nil
	}
	return false, nil
}

// hold records the reason why for which the stored state was rejected, and returns why. The current
// snapshot stays in use.
func (w *Watcher) hold(why error, revision int64, full bool) error {
	before := w.Status().Held
	if before == nil || before.Error() != why.Error() {
		w.log.Error("the new state of the database was rejected; the last valid snapshot stays in use", "reason", why, "revision", revision)
	}
	w.heldAt, w.heldFull = revision, full
	w.set(func(s *Status) { s.Held = why })
	return why
}

// swap replaces the current snapshot.
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

// logProblems logs the problems in next that the snapshot before does not have. It describes at
// most ten of them, and logs how many others there are.
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
			w.log.Error("an object cannot be used as stored", "kind", p.Kind, "id", p.ID, "name", p.Name,
				"error", p.Err, "last_good_kept", p.Kept)
		}
	}
	if fresh > byName {
		w.log.Error("more objects cannot be used as stored", "count", fresh-byName)
	}
}

// noteError stores err for Status. It logs err only if it differs from the error that was
// logged last.
func (w *Watcher) noteError(err error) {
	if errors.Is(err, errHeld) {
		return // hold has already logged this error, and Status.Held contains it
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != w.lastFail {
		if err != nil {
			w.log.Warn("the snapshot cannot be updated: the database is unavailable",
				"error", err, "serving_revision", w.Status().Revision, "loaded", w.Current() != nil)
		} else {
			w.log.Info("the snapshot is updated again")
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
