package enforcement

import (
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/cow"
)

// A group is what was set for one value: nearly always one row.
type group[T any] struct {
	row     *T
	several *several[T] // when there are more; row is then nil
}

// several are the rows of a group with more than one.
type several[T any] struct {
	rows   []*T // in order once the edit is settled
	useful []*T // the rows that a check has to look at, in order
	owner  *cow.Owner
}

// first returns the first row of a group. A check of most kinds needs no other.
func (g group[T]) first() *T {
	if g.several != nil {
		return g.several.useful[0]
	}
	return g.row
}

// each calls yield with the rows that a check has to look at.
func (g group[T]) each(yield func(*T)) {
	if g.row != nil {
		yield(g.row)
	}
	if g.several != nil {
		for _, row := range g.several.useful {
			yield(row)
		}
	}
}

// A groupable is a row that can stand in a group.
type groupable[T any] interface {
	*T
	// is reports whether both are of the same row.
	is(o *T) bool
	// before orders the rows of a group: below 0 if the receiver comes first.
	before(o *T) int
	// useful returns the rows that a check has to look at. rows is in order, is not
	// empty and must not be written.
	useful(rows []*T) []*T
}

// change adds a row to the group of a key, or removes it. Groups with several
// rows are put in order by the functions that it appends to settle.
func change[K comparable, T any, P groupable[T]](
	by *cow.Owner, settle *[]func(), m *cow.Map[K, group[T]], key K, row *T, remove bool,
) {
	g, found := m.Get(key)
	switch {
	case remove && (!found || g.several == nil && !P(row).is(g.row)): // not here
	case !found:
		m.Put(by, key, group[T]{row: row})
	case g.several == nil && remove:
		m.Delete(by, key)
	default:
		s := g.several
		if s == nil {
			s = &several[T]{rows: []*T{g.row}}
		}
		if s.owner != by {
			s = &several[T]{rows: slices.Clone(s.rows), owner: by}
			m.Put(by, key, group[T]{several: s})
			*settle = append(*settle, func() { settled[K, T, P](by, m, key, s) })
		}
		if remove {
			s.rows = slices.DeleteFunc(s.rows, P(row).is)
		} else {
			s.rows = append(s.rows, row)
		}
		if len(s.rows) == 0 {
			m.Delete(by, key)
		}
	}
}

// settled puts a group with several rows in order.
func settled[K comparable, T any, P groupable[T]](by *cow.Owner, m *cow.Map[K, group[T]], key K, s *several[T]) {
	if g, _ := m.Get(key); g.several != s {
		return // removed since
	}
	if len(s.rows) == 1 {
		m.Put(by, key, group[T]{row: s.rows[0]})
		return
	}
	slices.SortFunc(s.rows, func(a, b *T) int { return P(a).before(b) })
	s.useful = P(s.rows[0]).useful(s.rows)
}

// prefixes are groups by a prefix, found by one look for each length in use.
type prefixes[K comparable, T any] struct {
	by      cow.Map[K, group[T]]
	lengths lengths
}

// changePrefix is change for the group of a prefix of so many bytes or bits.
func changePrefix[K comparable, T any, P groupable[T]](
	by *cow.Owner, settle *[]func(), p *prefixes[K, T], key K, length int, row *T, remove bool,
) {
	before := p.by.Len()
	change[K, T, P](by, settle, &p.by, key, row, remove)
	p.lengths = p.lengths.with(length, p.by.Len()-before)
}

// networkAt returns the group of the network of so many bits that holds an address.
func networkAt[T any](p *prefixes[netip.Prefix, T], addr netip.Addr, bits int) (g group[T], found bool) {
	network, err := addr.Prefix(bits)
	if err != nil {
		return g, false
	}
	return p.by.Get(network)
}

// lengths are the lengths of prefixes that are in use, longest first.
type lengths []lengthInUse

type lengthInUse struct{ length, prefixes int }

// with returns the lengths when so many more prefixes have this one.
func (l lengths) with(length, more int) lengths {
	at, found := slices.BinarySearchFunc(l, length, func(x lengthInUse, length int) int { return length - x.length })
	switch {
	case more == 0:
		return l
	case !found:
		return slices.Insert(slices.Clip(l), at, lengthInUse{length, more})
	case l[at].prefixes+more == 0 && len(l) == 1:
		return nil
	case l[at].prefixes+more == 0:
		return slices.Delete(slices.Clone(l), at, at+1)
	}
	l = slices.Clone(l)
	l[at].prefixes += more
	return l
}
