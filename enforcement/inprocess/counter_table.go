package inprocess

import (
	"runtime"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// A cell stores one counter in 64 bytes. It has no pointer, so that the garbage
// collector does not scan cells.
type cell struct {
	key  enforcement.Key
	rev  int64 // 0 if the cell is free
	a, b int64
	t    int64
	// due is the number of the tick at which the counter is as if unused, so that its cell may
	// be deleted. A tick has 2^dueBits microseconds.
	due uint32
	// log has one of three meanings. Usually it is 1 + the index of the log entries in
	// table.logs, or 0 if there are none. In a free cell, it is 1 + the index of the next free
	// cell. In a cell of the table seen, it is the time of the shared limiter's decision: the
	// low 32 bits of its milliseconds.
	log uint32
}

const (
	dueBits   = 21 // a tick is 2^21 microseconds, about two seconds; 32 bits last until the year 2255
	chunkBits = 6
	chunkSize = 1 << chunkBits // a chunk of cells has 4 KiB
	none      = -1             // no cell
)

// A shard has the counters of all keys whose hashes have the same highest bits.
type shard struct {
	mu    sync.Mutex // guards all other fields
	table            // the counters
	seen  table      // the last known states of shared counters
	// records has the records of idempotent requests. It is nil if there are none.
	records *records

	_ [16]byte // padding, so that two shards never share a cache line
}

// A table stores the counters of a shard, each in one cell.
type table struct {
	// slots is a hash table with open addressing and linear probing. The high half of a
	// slot is the low 32 bits of the hash. The low half is 1 + the index of the cell. An
	// empty slot is 0. At most three quarters of the slots are in use.
	slots []uint64
	// chunks has the cells in fixed blocks, so that a cell never moves.
	chunks []*[chunkSize]cell
	made   uint32 // number of cells allocated so far, both free and in use
	free   uint32 // 1 + the index of the first free cell
	live   uint32
	// next is the tick at which sweep visits the table again. Before this tick, no cell may be
	// deleted.
	next uint32
	logs []*entries
	// freeLogs has the unused indexes in logs.
	freeLogs []uint32
}

// These constants limit how long a goroutine spins while a shard is locked. The goroutine
// tries the lock again after lockPause steps of wait, then after twice as many, and so on,
// up to lockTries times. Then it yields the processor. It repeats all of this lockYields
// times before it blocks on the mutex.
const (
	lockPause  = 512
	lockTries  = 4
	lockYields = 64
)

// lock locks the mutex of a shard. A shard is locked for only about ten nanoseconds, but
// waking a blocked goroutine takes much longer. sync.Mutex blocks as soon as other
// goroutines can run. Therefore lock spins first, and blocks only if the goroutine that
// holds the lock is not running.
func (s *shard) lock() {
	if !s.mu.TryLock() {
		s.contend()
	}
}

func (s *shard) contend() {
	for range lockYields {
		for try := range lockTries {
			wait(lockPause << try)
			if s.mu.TryLock() {
				return
			}
		}
		runtime.Gosched()
	}
	s.mu.Lock()
}

// wait spins for some nanoseconds per ten steps. It does not read the shard. The shard
// then stays in the cache of the processor whose goroutine has the lock, and that
// goroutine can decide several requests in a row.
//
//go:noinline
func wait(steps int) {
	for x := uint32(1); steps > 0; steps-- {
		x = x*1664525 + 1013904223
		if x == 0 {
			return
		}
	}
}

func (s *shard) unlock() { s.mu.Unlock() }

func (t *table) cell(i int32) *cell { return &t.chunks[uint32(i)>>chunkBits][uint32(i)%chunkSize] }

// find returns the index of the cell of a key. If the key has no cell, it returns the constant
// none.
func (t *table) find(key *enforcement.Key, hash uint32) int32 {
	if len(t.slots) == 0 {
		return none
	}
	mask := uint32(len(t.slots) - 1)
	for p := hash & mask; ; p = (p + 1) & mask {
		slot := t.slots[p]
		if slot == 0 {
			return none
		}
		if uint32(slot>>32) == hash {
			if i := int32(uint32(slot)) - 1; t.cell(i).key == *key {
				return i
			}
		}
	}
}

// insert allocates a cell for a key that has none, and returns the index of the cell.
func (t *table) insert(key *enforcement.Key, hash uint32) int32 {
	if uint32(len(t.slots))*3 <= t.live*4 {
		t.grow()
	}
	var i int32
	if t.free != 0 {
		i = int32(t.free) - 1
		t.free = t.cell(i).log
	} else {
		i = int32(t.made)
		if t.made++; uint32(i)>>chunkBits == uint32(len(t.chunks)) {
			t.chunks = append(t.chunks, new([chunkSize]cell))
		}
	}
	*t.cell(i) = cell{key: *key}
	t.live++
	t.place(uint64(hash)<<32 | uint64(uint32(i)+1))
	return i
}

func (t *table) place(slot uint64) {
	mask := uint32(len(t.slots) - 1)
	p := uint32(slot>>32) & mask
	for t.slots[p] != 0 {
		p = (p + 1) & mask
	}
	t.slots[p] = slot
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]uint64, max(8, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			t.place(slot)
		}
	}
}

// remove frees cell i. It moves the following slots forward, so that the hash table
// needs no markers for deleted slots.
func (t *table) remove(i int32, hash uint32) {
	mask := uint32(len(t.slots) - 1)
	p := hash & mask
	for uint32(t.slots[p]) != uint32(i)+1 {
		p = (p + 1) & mask
	}
	for q := p; ; {
		q = (q + 1) & mask
		slot := t.slots[q]
		if slot == 0 {
			break
		}
		// The slot at q may move to p if its hash position is not in (p, q].
		if home := uint32(slot>>32) & mask; (q-home)&mask >= (q-p)&mask {
			t.slots[p] = slot
			p = q
		}
	}
	t.slots[p] = 0
	c := t.cell(i)
	if c.log != 0 {
		t.freeLogs = append(t.freeLogs, c.log-1)
		t.logs[c.log-1] = nil
	}
	*c = cell{log: t.free}
	t.free = uint32(i) + 1
	if t.live--; t.live == 0 { // the last cell is gone: release all memory, for example after a flood of keys
		t.slots, t.chunks, t.logs, t.freeLogs = nil, nil, nil, nil
		t.made, t.free, t.next = 0, 0, 0
	}
}
