package inprocess

import (
	"runtime"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// A cell is one counter. It has 64 bytes and no pointer, so the garbage collector does
// not scan cells.
type cell struct {
	key  enforcement.Key
	rev  int64 // 0: the cell is free
	a, b int64
	t    int64
	// due is the tick of dueBits at which the cell is in its initial state and may be deleted.
	due uint32
	// log is 1 + the position of the entries in table.logs, or 0 without entries. In a
	// free cell, it is 1 + the number of the next free cell. In a cell of shard.seen, it
	// is the time of the shared limiter's decision: the low 32 bits of the milliseconds.
	log uint32
}

const (
	dueBits   = 21 // a tick is 2^21 microseconds, two seconds: 32 bits reach the year 2255
	chunkBits = 6
	chunkSize = 1 << chunkBits // 4 KiB of cells
	none      = -1             // no cell
)

// A shard holds the keys whose hashes have the same top bits.
type shard struct {
	mu    sync.Mutex // guards the other fields
	table            // the counters
	seen  table      // the last known states of shared counters

	_ [24]byte // two shards never share a cache line
}

// A table holds the cells of a shard.
type table struct {
	// slots is a hash table with open addressing and linear probing. A slot has the low
	// 32 bits of the hash in its high half and 1 + the number of the cell in its low half.
	// An empty slot is 0. At most three quarters are used.
	slots []uint64
	// chunks hold the cells; a cell never moves.
	chunks []*[chunkSize]cell
	made   uint32 // number of allocated cells, free and live
	free   uint32 // 1 + the first free cell
	live   uint32
	// next is the tick at which sweep visits the table again. No cell is due before it.
	next uint32
	logs []*entries
	// freeLogs has the unused positions in logs.
	freeLogs []uint32
}

// A goroutine that finds a shard locked tries again after lockPause steps of wait, then
// after twice as many, up to lockTries times. Then it yields the processor. It does all
// this lockYields times before it blocks on the mutex.
const (
	lockPause  = 512
	lockTries  = 4
	lockYields = 64
)

// lock locks the mutex. A goroutine holds a shard for some ten nanoseconds, which is
// much shorter than the wake-up of a blocked goroutine. sync.Mutex blocks as soon as
// other goroutines are ready to run. lock therefore spins first, and blocks only if the
// holder is not running.
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

// wait takes some nanoseconds for ten steps. It does not read the shard, so that
// the holder keeps the shard in the cache of its processor, and decides several requests
// before the next goroutine gets it.
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

// find returns the number of key's cell, or none.
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

// insert allocates a cell for key, which must have none.
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

// remove frees cell i. It moves the following slots forward, so that no deleted slot
// has to be marked.
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
		// A slot may move to p if its hash position is not in (p, q].
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
	if t.live--; t.live == 0 { // release the memory after a flood of keys
		t.slots, t.chunks, t.logs, t.freeLogs = nil, nil, nil, nil
		t.made, t.free, t.next = 0, 0, 0
	}
}
