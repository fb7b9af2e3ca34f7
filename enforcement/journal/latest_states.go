package journal

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

const (
	shardCount = 64
	// resetKept is how long the state of a reset counter stays in the database, in microseconds. If a
	// node writes an older state of the counter after this time, the older state replaces the reset.
	resetKept = int64(time.Hour / time.Microsecond)
	// idleFor is the minimum time for which a written state stays in memory after its last change.
	idleFor = time.Minute
)

// A memory has, for each durable counter, the newest state that this node received.
type memory struct {
	max     int // maximum number of states in each shard
	notKept atomic.Int64
	shards  [shardCount]shard
	swept   int // index of the shard that sweep visits next; only Run uses it
}

type shard struct {
	mu      sync.Mutex
	states  map[enforcement.Key]*state
	changed []*state // states that are not written, oldest change first
}

// A state is the newest state of one counter.
type state struct {
	key   enforcement.Key
	meter *enforcement.Meter
	rev   int64

	last, written numbers   // the newest state, and the state in the database
	at            int64     // time of the newest state, by the limiter's clock
	known         bool      // set if written has a value
	changed       bool      // set if the newest state is not written
	listed        bool      // set if the state is in shard.changed
	since         time.Time // time of the first change since the last write
}

// numbers has the integers of a State. It does not have the entries of a log.
type numbers struct{ rev, a, b, t int64 }

func (n numbers) state() enforcement.State {
	return enforcement.State{Rev: n.rev, A: n.a, B: n.b, T: n.t}
}

func (m *memory) open(most int) {
	m.max = max(most/shardCount, 1)
	for i := range m.shards {
		m.shards[i].states = map[enforcement.Key]*state{}
	}
}

func (m *memory) shard(key *enforcement.Key) *shard {
	h := binary.LittleEndian.Uint64(key.Partition[:8]) ^ uint64(key.Tenant)<<32 ^ uint64(key.Cell)
	return &m.shards[h*0x9e3779b97f4a7c15>>58]
}

// note stores the state that a counter had at the time at.
func (m *memory) note(key enforcement.Key, meter *enforcement.Meter, rev int64, s *enforcement.State, at int64) {
	sh := m.shard(&key)
	now := numbers{s.Rev, s.A, s.B, s.T}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.states[key]
	switch {
	case n == nil:
		if n = sh.add(key, m.max); n == nil {
			m.notKept.Add(1)
			return
		}
	case at < n.at || at == n.at && !later(meter, n.last, s, at):
		return
	}
	same := n.at != 0 && n.last == now
	n.meter, n.rev, n.last, n.at = meter, rev, now, at
	if !same && !n.changed {
		n.changed, n.since = true, time.Now()
		if !n.listed {
			n.listed = true
			sh.changed = append(sh.changed, n)
		}
	}
}

// later reports whether the state is replaces the state was. Both are states of one counter, and
// the limiter decided both at the time at.
func later(m *enforcement.Meter, was numbers, is *enforcement.State, at int64) bool {
	has := was.state()
	stored := enforcement.Stored{Algorithm: m.Algorithm, State: *is, At: at}
	return stored.Newer(&has)
}

// add creates the state of a key. If the shard is full, the new state takes the place of a state
// that is already written. If all states are unwritten, add returns nil.
func (sh *shard) add(key enforcement.Key, most int) *state {
	if len(sh.states) >= most {
		if len(sh.changed) >= len(sh.states) {
			return nil
		}
		for k, n := range sh.states {
			if !n.listed {
				delete(sh.states, k)
				break
			}
		}
	}
	n := &state{key: key}
	sh.states[key] = n
	return n
}

// due reports whether the state must be written now. It returns true if the units that are left
// differ from those of the written state by at least 0.1 % of the quota. It also returns true if
// the state was not written before, if the counter was reset, or if a change has waited for at
// least longest.
func (n *state) due(now time.Time, longest time.Duration) bool {
	if !n.known || now.Sub(n.since) >= longest || n.last.rev == 0 {
		return true
	}
	was, _ := n.meter.Settle(n.written.state(), n.rev, n.at)
	moved := n.meter.Left(was, n.at) - n.meter.Left(n.last.state(), n.at)
	return max(moved, -moved) >= n.meter.Quota/1000
}

// stored returns the state in the form of the store.
func (n *state) stored() enforcement.Stored {
	s := enforcement.Stored{Key: n.key, Algorithm: n.meter.Algorithm, State: n.last.state(), At: n.at}
	switch {
	case s.State.Fresh():
		s.Ends = n.at + resetKept
	case n.meter.Period != enforcement.NoPeriod, n.meter.Algorithm == enforcement.SlidingWindowCounter:
		// The result is an upper bound. The time zone of the tenant can change, and a charge that
		// changes the value in place keeps the expiry of the value.
		s.Ends = s.State.T + n.meter.Life()
	default:
		s.Ends = n.at + n.meter.ResetAfter(s.State, n.at)
	}
	return s
}

// due returns the states that must be written now. If all is true, it returns every state that is
// not written.
func (m *memory) due(now time.Time, longest time.Duration, all bool) (list []enforcement.Stored) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		for _, n := range sh.changed {
			if all || n.due(now, longest) {
				list = append(list, n.stored())
			}
		}
		sh.mu.Unlock()
	}
	return list
}

// wrote records that the states in list were written at the time now. list is a result of due. If
// a state has changed since then, it must be written again.
func (m *memory) wrote(list []enforcement.Stored, now time.Time) {
	for i := range list {
		row := &list[i]
		sh := m.shard(&row.Key)
		sh.mu.Lock()
		if n := sh.states[row.Key]; n != nil {
			n.known, n.written, n.since = true, numbers{row.State.Rev, row.State.A, row.State.B, row.State.T}, now
			n.changed = n.last != n.written
		}
		sh.mu.Unlock()
	}
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		sh.changed = slices.DeleteFunc(sh.changed, func(n *state) bool {
			n.listed = n.changed
			return !n.changed
		})
		sh.mu.Unlock()
	}
}

// unsure records that the states in list may or may not have been written. list is a result of
// due.
func (m *memory) unsure(list []enforcement.Stored) {
	for i := range list {
		sh := m.shard(&list[i].Key)
		sh.mu.Lock()
		if n := sh.states[list[i].Key]; n != nil {
			n.known = false
		}
		sh.mu.Unlock()
	}
}

// waiting returns the number of states that are not written, and the time of the oldest
// change.
func (m *memory) waiting() (n int, oldest time.Time) {
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		n += len(sh.changed)
		for _, s := range sh.changed {
			if oldest.IsZero() || s.since.Before(oldest) {
				oldest = s.since
			}
		}
		sh.mu.Unlock()
	}
	return n, oldest
}

// sweep removes states that have not changed for a while from one shard.
func (m *memory) sweep(now time.Time) {
	sh := &m.shards[m.swept]
	m.swept = (m.swept + 1) % shardCount
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, n := range sh.states {
		if !n.listed && now.Sub(n.since) >= idleFor {
			delete(sh.states, key)
		}
	}
	if len(sh.states) == 0 {
		sh.states = map[enforcement.Key]*state{} // releases the memory that the map used for many keys
	}
	sh.changed = slices.Clip(sh.changed)
}
