package journal

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A Store keeps the states of durable counters. internal/store implements it.
type Store interface {
	// WriteJournal stores states, which are sorted by their keys. A state replaces the stored state of its key, unless
	// the stored state has a later time. WriteJournal ignores states of deleted tenants.
	WriteJournal(ctx context.Context, states []enforcement.Stored) error
	// ReadJournal returns up to limit states whose counters may still be in use, ordered by key. It begins after the key
	// after. home selects the tenants of one home; "" selects all tenants.
	ReadJournal(ctx context.Context, home string, after enforcement.Key, limit int) ([]enforcement.Stored, error)
}

// Config has the settings of a Journal. The zero value selects the defaults.
type Config struct {
	// Interval is the time between two flushes. Default: 1 s.
	Interval time.Duration
	// Longest is the maximum time for which a changed state stays unwritten. If the change of a state is at least 0.1 %
	// of the quota, the next flush writes the state. Default: 10 s.
	Longest time.Duration
	// MaxStates is the maximum number of states in memory. Each state takes about 200 bytes. If so many states wait for
	// the database, the Journal drops changes of other counters. Default: 200,000.
	MaxStates int
	// Timeout bounds one write or read. Default: 10 s.
	Timeout time.Duration
	// StopTimeout bounds the last flush, after the ctx of Run has ended. Default: 5 s.
	StopTimeout time.Duration
	// Nodes returns the IDs of the nodes that run. Default: none.
	Nodes func(context.Context) ([]string, error)
	// Lost is set if the limiter has no data at the start. Durable requests then have the
	// verdict Lost until Restore has succeeded.
	Lost bool
	// Logger logs the first failed flush and the recovery. Default: none.
	Logger *slog.Logger
}

// A Status is the state of a Journal.
type Status struct {
	// Waiting is the number of changed states that are not written yet. WaitingFor is the age of the oldest such change.
	Waiting    int
	WaitingFor time.Duration
	// Written is the number of states that were written since the start.
	Written int64
	// NotKept is the number of changes that were dropped, because memory was full of unwritten states. If the limiter
	// loses its data, these changes are not restored.
	NotKept int64
	// FailingSince is the time of the first failed flush after the last successful one. It is
	// zero if the last flush succeeded.
	FailingSince time.Time
	// Failure is the error of the last flush, or nil.
	Failure error
}

// A Journal is a Limiter that stores the states of durable counters. It is safe for
// concurrent use.
type Journal struct {
	limiter enforcement.Limiter
	shared  bool // set if several nodes use the limiter
	config  Config
	store   atomic.Pointer[Store]
	lost    atomic.Bool
	memory  memory
	calls   calls
	sending sync.Mutex // held during a flush, so that there is only one at a time

	mu     sync.Mutex
	status Status
}

var _ enforcement.Drawer = (*Journal)(nil)

// New returns a Journal in front of a limiter. The method Draw needs a limiter that is a Drawer. Until Open is
// called, the Journal keeps states in memory only.
func New(limiter enforcement.Limiter, c Config) *Journal {
	c.Interval, c.Longest = cmp.Or(c.Interval, time.Second), cmp.Or(c.Longest, 10*time.Second)
	c.MaxStates = cmp.Or(c.MaxStates, 200_000)
	c.Timeout, c.StopTimeout = cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.StopTimeout, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	j := &Journal{limiter: limiter, config: c}
	_, j.shared = limiter.(enforcement.Drawer)
	j.lost.Store(c.Lost)
	j.memory.open(c.MaxStates)
	return j
}

// Open sets the store. Open must be called before Run and Restore.
func (j *Journal) Open(s Store) { j.store.Store(&s) }

// errLost is the error of durable requests before Restore has succeeded.
var errLost = errors.New("journal: the durable limits are not restored yet")

// Take implements [enforcement.Limiter]. It records the new states of durable counters, which it takes from the
// outcomes. If a request resets counters, it writes their states before it returns, so that a restart cannot undo the
// reset.
func (j *Journal) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if j.take(ctx, requests, outcomes) {
		_ = j.Flush(ctx) // Status has the error, and Run writes the states later
	}
}

// take decides requests and keeps the new states of durable counters in memory. It reports whether a durable counter
// was reset.
func (j *Journal) take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) (reset bool) {
	if j.shared {
		defer j.calls.leave(j.calls.enter())
	}
	if j.lost.Load() {
		j.takeOthers(ctx, requests, outcomes)
	} else {
		j.limiter.Take(ctx, requests, outcomes)
	}
	for i := range requests {
		if j.note(&requests[i], &outcomes[i]) && requests[i].Mode == enforcement.Reset {
			reset = true
		}
	}
	return reset
}

// takeOthers sets the verdict of the durable requests to Lost, and lets the limiter decide all others.
func (j *Journal) takeOthers(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range requests {
		if requests[i].Durable() {
			outcomes[i] = enforcement.Outcome{Verdict: enforcement.Lost, Err: errLost, Charges: outcomes[i].Charges[:0]}
			continue
		}
		j.limiter.Take(ctx, requests[i:i+1], outcomes[i:i+1])
	}
}

// note stores the new states of the durable counters that a request charged, until the journal
// writes them to the database. It reports whether the request charged a durable counter.
func (j *Journal) note(r *enforcement.Request, o *enforcement.Outcome) (durable bool) {
	if o.Verdict != enforcement.Granted && o.Verdict != enforcement.Refused || o.Replayed || r.Mode == enforcement.Peek {
		return false
	}
	for i := range r.Charges {
		c := &r.Charges[i]
		if !c.Meter.Durable {
			continue
		}
		durable = true
		if o.Verdict == enforcement.Refused && c.Meter.Algorithm.Bucket() {
			continue // the request changed nothing
		}
		if o.Charges[i].State.Fresh() && r.Mode != enforcement.Reset {
			continue // the counter is unused, or its window has ended
		}
		key := c.Key
		if o.Charges[i].Shared {
			key.Partition = enforcement.Overflow
		}
		j.memory.note(key, c.Meter, c.Rev, &o.Charges[i].State, o.At)
	}
	return durable
}

// Draw implements [enforcement.Drawer].
func (j *Journal) Draw(ctx context.Context, draws []enforcement.Draw, drawn []enforcement.Drawn) {
	defer j.calls.leave(j.calls.enter())
	j.limiter.(enforcement.Drawer).Draw(ctx, draws, drawn)
	for i := range draws {
		if d := &draws[i]; d.Meter.Durable && drawn[i].Err == nil && !drawn[i].State.Fresh() {
			j.memory.note(d.Key, d.Meter, d.Rev, &drawn[i].State, drawn[i].At)
		}
	}
}

// Nodes implements [enforcement.Journal].
func (j *Journal) Nodes(ctx context.Context) ([]string, error) {
	if j.config.Nodes == nil {
		return nil, nil
	}
	return j.config.Nodes(ctx)
}

// readStates is the number of states that one call of Store.ReadJournal returns.
const readStates = 1000

// States implements [enforcement.Journal].
func (j *Journal) States(ctx context.Context, home string, use func([]enforcement.Stored) error) error {
	store := j.store.Load()
	if store == nil {
		return errNotOpen
	}
	for after := (enforcement.Key{}); ; {
		states, err := j.read(ctx, *store, home, after)
		if err != nil || len(states) == 0 {
			return err
		}
		if err := use(states); err != nil {
			return err
		}
		if len(states) < readStates {
			return nil
		}
		after = states[len(states)-1].Key
	}
}

func (j *Journal) read(ctx context.Context, s Store, home string, after enforcement.Key) ([]enforcement.Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, j.config.Timeout)
	defer cancel()
	return s.ReadJournal(ctx, home, after, readStates)
}

// Restore calls restore with all stored states, and returns their number. After it has
// succeeded, the Journal decides durable requests.
func (j *Journal) Restore(ctx context.Context, restore func([]enforcement.Stored)) (n int, err error) {
	err = j.States(ctx, "", func(states []enforcement.Stored) error {
		n += len(states)
		restore(states)
		return nil
	})
	if err == nil {
		j.lost.Store(false)
	}
	return n, err
}
