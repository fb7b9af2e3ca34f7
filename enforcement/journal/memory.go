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
	// resetKept is how long the state of a reset counter is stored, in microseconds. A state
	// from before the reset that a node writes later must be older than this.
	resetKept = int64(time.Hour / time.Microsecond)
	// idleFor is the time after the last write of a state after which it leaves the memory,
	// plus the time that it waited for the write.
	idleFor = time.Minute
)

// A memory has the newest state of each durable counter that this node read.
type memory struct {
	max     int // of each shard
	notKept atomic.Int64
	shards  [shardCount]shard
	swept   int // shard that sweep looks at next; only Run uses it
}

type shard struct {
	mu      sync.Mutex
	states  map[enforcement.Key]*state
	changed []*state // those that are not written, oldest change first
}

// A state is the newest state of one counter.
type state struct {
	key   enforcement.Key
	meter *enforcement.Meter
	rev   int64

	last, written numbers   // the newest state, and the one in the store
	at            int64     // the time of last by the limiter's clock
	known         bool      // written is set
	changed       bool      // last is not written
	listed        bool      // the state is in shard.changed
	since         time.Time // of the first change after the last write
}

// numbers are those of a State without the entries of a log.
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

// note notes the state of a counter at the time at.
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

// later reports whether the second of two states of the instant at is the later one.
func later(m *enforcement.Meter, was numbers, is *enforcement.State, at int64) bool {
	has := was.state()
	stored := enforcement.Stored{Algorithm: m.Algorithm, State: *is, At: at}
	return stored.Newer(&has)
}

// add returns a new state for a key. If the shard is full, it takes the place of a state
// that is written. add returns nil if there is none.
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

// due reports whether the state must be written. That is so if the store has another one
// from which a restored counter would allow at least 0.1 % of the quota too much.
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
	case n.meter.Period != enforcement.NoPeriod:
		s.Ends = s.State.T + n.meter.Window // the zone of the tenant can change
	case n.meter.Algorithm == enforcement.SlidingWindowCounter:
		s.Ends = s.State.T + 2*n.meter.Window // a charge that changes the value in place keeps its expiry
	default:
		s.Ends = n.at + n.meter.ResetAfter(s.State, n.at)
	}
	return s
}

// due returns the states that must be written, or with all, every state that is not written.
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

// wrote records that states of due were written at the time now. States that have changed
// since then must be written again.
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

// unsure records that states of due may have been written or not.
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

// sweep removes idle states from one shard.
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
		sh.states = map[enforcement.Key]*state{} // releases the memory of a flood of keys
	}
	sh.changed = slices.Clip(sh.changed)
}
