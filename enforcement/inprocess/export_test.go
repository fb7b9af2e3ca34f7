package inprocess

import "github.com/headgate/headgate/enforcement"

// Hold locks the shard of a key until release is called.
func (l *Limiter) Hold(k enforcement.Key) (release func()) {
	s := &l.shards[shardOf(l.hash(&k))]
	s.lock()
	return s.unlock
}

// Sweep is one sweep of Run.
func (l *Limiter) Sweep() { l.sweep() }

// Used is how much memory is counted, in cells.
func (l *Limiter) Used() int64 { return l.counted.used.Load() }

// Hash is the hash by which a key's shard and slot are found.
func (l *Limiter) Hash(k enforcement.Key) uint64 { return l.hash(&k) }

// Remembered is how many states of shared counters are kept.
func (l *Limiter) Remembered() int64 { return l.remembered.used.Load() }
