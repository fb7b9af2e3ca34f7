package inprocess

import (
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// A cell is one counter: 64 bytes and no pointer, so that the garbage collector
// passes over millions of them.
type cell struct {
	key  enforcement.Key
	rev  int64 // 0: the cell is free
	a, b int64
	t    int64
	// due is when the cell is as new and may be dropped, in ticks of dueBits.
	due uint32
	// log is 1 + the place of a log's entries in shard.logs, 0 for none. Of a
	// free cell it is 1 + the next free cell.
	log uint32
}

const (
	dueBits   = 21 // a tick is 2^21 microseconds, two seconds: 32 bits reach the year 2255
	chunkBits = 6
	chunkSize = 1 << chunkBits // 4 KiB of cells
	none      = -1             // no cell
)

// A shard is a part of the keys, chosen by the top bits of their hash.
type shard struct {
	mu sync.Mutex // guards all below
	// slots finds cells by open addressing with linear probing: the low 32 bits
	// of the hash above, 1 + the cell's number below; 0 is empty. At most three
	// quarters are used.
	slots []uint64
	// chunks hold the cells; a cell never moves.
	chunks []*[chunkSize]cell
	made   uint32 // cells ever made: all numbers below are free or live
	free   uint32 // 1 + the first free cell
	live   uint32
	// next is at least as early as the first due of a cell, when sweep looks again.
	next uint32
	logs []*entries
	// freeLogs are places in logs without entries.
	freeLogs []uint32

	_ [24]byte // two shards never share a cache line
}

func (s *shard) cell(i int32) *cell { return &s.chunks[uint32(i)>>chunkBits][uint32(i)%chunkSize] }

// find gives the number of key's cell, or none.
func (s *shard) find(key *enforcement.Key, hash uint32) int32 {
	if len(s.slots) == 0 {
		return none
	}
	mask := uint32(len(s.slots) - 1)
	for p := hash & mask; ; p = (p + 1) & mask {
		slot := s.slots[p]
		if slot == 0 {
			return none
		}
		if uint32(slot>>32) == hash {
			if i := int32(uint32(slot)) - 1; s.cell(i).key == *key {
				return i
			}
		}
	}
}

// insert makes a cell for key, which must have none.
func (s *shard) insert(key *enforcement.Key, hash uint32) int32 {
	if uint32(len(s.slots))*3 <= s.live*4 {
		s.grow()
	}
	var i int32
	if s.free != 0 {
		i = int32(s.free) - 1
		s.free = s.cell(i).log
	} else {
		i = int32(s.made)
		if s.made++; uint32(i)>>chunkBits == uint32(len(s.chunks)) {
			s.chunks = append(s.chunks, new([chunkSize]cell))
		}
	}
	*s.cell(i) = cell{key: *key}
	s.live++
	s.place(uint64(hash)<<32 | uint64(uint32(i)+1))
	return i
}

func (s *shard) place(slot uint64) {
	mask := uint32(len(s.slots) - 1)
	p := uint32(slot>>32) & mask
	for s.slots[p] != 0 {
		p = (p + 1) & mask
	}
	s.slots[p] = slot
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]uint64, max(8, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			s.place(slot)
		}
	}
}

// remove frees cell i. The slots behind it close up, so that no mark stays.
func (s *shard) remove(i int32, hash uint32) {
	mask := uint32(len(s.slots) - 1)
	p := hash & mask
	for uint32(s.slots[p]) != uint32(i)+1 {
		p = (p + 1) & mask
	}
	for q := p; ; {
		q = (q + 1) & mask
		slot := s.slots[q]
		if slot == 0 {
			break
		}
		// A slot may move to p when its own place is not within (p, q].
		if home := uint32(slot>>32) & mask; (q-home)&mask >= (q-p)&mask {
			s.slots[p] = slot
			p = q
		}
	}
	s.slots[p] = 0
	c := s.cell(i)
	if c.log != 0 {
		s.freeLogs = append(s.freeLogs, c.log-1)
		s.logs[c.log-1] = nil
	}
	*c = cell{log: s.free}
	s.free = uint32(i) + 1
	if s.live--; s.live == 0 { // give a flood's memory back
		s.slots, s.chunks, s.logs, s.freeLogs = nil, nil, nil, nil
		s.made, s.free, s.next = 0, 0, 0
	}
}
