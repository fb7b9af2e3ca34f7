package enforcement

import (
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/cow"
)

// A group has the rows of a map with the same key: list entries, blocks or overrides with the same
// value. Almost all groups have one row.
type group[T any] struct {
	row     *T
	several *several[T] // the rows, if there are several; row is then nil
}

// A several has the rows of a group with more than one row.
type several[T any] struct {
	rows      []*T // all rows; sorted at the end of Exceptions.Edit
	effective []*T // the rows that can have an effect, sorted
	owner     *cow.Owner
}

// first returns the row of the group that comes before all others in effect.
func (g group[T]) first() *T {
	if g.several != nil {
		return g.several.effective[0]
	}
	return g.row
}

// each calls yield with each row of the group that can have an effect.
func (g group[T]) each(yield func(*T)) {
	if g.row != nil {
		yield(g.row)
	}
	if g.several != nil {
		for _, row := range g.several.effective {
			yield(row)
		}
	}
}

// A groupable is a pointer to a type of rows that can be in a group.
type groupable[T any] interface {
	*T
	// is reports whether the receiver and o are the same row.
	is(o *T) bool
	// before compares two rows for sorting. The result is negative if the receiver comes before o.
	before(o *T) int
	// effective returns the rows in rows that can have an effect. rows is sorted and not empty.
	// effective must not change it.
	effective(rows []*T) []*T
}

// change adds row to the group that m stores under key. If remove is set, it removes row from the
// group instead.
//
// If the group then has to be sorted, change appends a function to sorts that does so. The caller
// makes all its changes first and then calls the functions in sorts.
func change[K comparable, T any, P groupable[T]](
	by *cow.Owner, sorts *[]func(), m *cow.Map[K, group[T]], key K, row *T, remove bool,
) {
	g, found := m.Get(key)
	switch {
	case remove && (!found || g.several == nil && !P(row).is(g.row)): // the group does not have the row to remove
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
			*sorts = append(*sorts, func() { sortGroup[K, T, P](by, m, key, s) })
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

// sortGroup sorts the rows of a group and sets which of them can have an effect. If only one row is
// left, sortGroup stores that row in the group itself, without a several.
func sortGroup[K comparable, T any, P groupable[T]](by *cow.Owner, m *cow.Map[K, group[T]], key K, s *several[T]) {
	if g, _ := m.Get(key); g.several != s {
		return // the group was deleted or replaced after this change
	}
	if len(s.rows) == 1 {
		m.Put(by, key, group[T]{row: s.rows[0]})
		return
	}
	slices.SortFunc(s.rows, func(a, b *T) int { return P(a).before(b) })
	s.effective = P(s.rows[0]).effective(s.rows)
}

// A prefixes has groups by prefix. lengths contains all lengths of these prefixes, so that a search
// makes one lookup for each length.
type prefixes[K comparable, T any] struct {
	by      cow.Map[K, group[T]]
	lengths lengths
}

// changePrefix adds a row to the group of a prefix, or removes the row; see change. length is the
// length of the prefix: in bytes for a text, in bits for a network.
func changePrefix[K comparable, T any, P groupable[T]](
	by *cow.Owner, sorts *[]func(), p *prefixes[K, T], key K, length int, row *T, remove bool,
) {
	before := p.by.Len()
	change[K, T, P](by, sorts, &p.by, key, row, remove)
	p.lengths = p.lengths.with(length, p.by.Len()-before)
}

// networkAt returns the group of the network with a prefix of the given number of bits that
// contains addr.
func networkAt[T any](p *prefixes[netip.Prefix, T], addr netip.Addr, bits int) (g group[T], found bool) {
	network, err := addr.Prefix(bits)
	if err != nil {
		return g, false
	}
	return p.by.Get(network)
}

// lengths has the different lengths of the prefixes in a map, longest first, each with the number
// of prefixes that have this length.
type lengths []lengthInUse

type lengthInUse struct{ length, prefixes int }

// with returns a copy of l that counts more additional prefixes of a length. If prefixes were
// removed, more is negative.
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
