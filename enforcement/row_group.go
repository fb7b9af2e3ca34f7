package enforcement

import (
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/cow"
)

// A group has the rows for one value: almost always one.
type group[T any] struct {
	row     *T
	several *several[T] // for more than one row; row is then nil
}

// several are the rows of a group with more than one.
type several[T any] struct {
	rows   []*T // sorted when Edit is done
	useful []*T // the rows that a check reads, sorted
	owner  *cow.Owner
}

// first returns the first row of a group.
func (g group[T]) first() *T {
	if g.several != nil {
		return g.several.useful[0]
	}
	return g.row
}

// each calls yield with the rows that a check reads.
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

// A groupable is a row type that groups can have.
type groupable[T any] interface {
	*T
	// is reports whether both are the same row.
	is(o *T) bool
	// before compares rows for sorting: below 0 if the receiver comes first.
	before(o *T) int
	// useful returns the rows that a check reads. rows is sorted and not empty, and
	// must not be written.
	useful(rows []*T) []*T
}

// change adds a row to the group of a key, or removes it. For a group with several
// rows, it appends a function to sorts that sorts the group.
func change[K comparable, T any, P groupable[T]](
	by *cow.Owner, sorts *[]func(), m *cow.Map[K, group[T]], key K, row *T, remove bool,
) {
	g, found := m.Get(key)
	switch {
	case remove && (!found || g.several == nil && !P(row).is(g.row)): // the group does not have the row
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

// sortGroup sorts a group with several rows.
func sortGroup[K comparable, T any, P groupable[T]](by *cow.Owner, m *cow.Map[K, group[T]], key K, s *several[T]) {
	if g, _ := m.Get(key); g.several != s {
		return // the group was replaced after the change
	}
	if len(s.rows) == 1 {
		m.Put(by, key, group[T]{row: s.rows[0]})
		return
	}
	slices.SortFunc(s.rows, func(a, b *T) int { return P(a).before(b) })
	s.useful = P(s.rows[0]).useful(s.rows)
}

// prefixes are groups by prefix. A search looks up each length in use once.
type prefixes[K comparable, T any] struct {
	by      cow.Map[K, group[T]]
	lengths lengths
}

// changePrefix is change for the group of a prefix. length is in bytes or bits.
func changePrefix[K comparable, T any, P groupable[T]](
	by *cow.Owner, sorts *[]func(), p *prefixes[K, T], key K, length int, row *T, remove bool,
) {
	before := p.by.Len()
	change[K, T, P](by, sorts, &p.by, key, row, remove)
	p.lengths = p.lengths.with(length, p.by.Len()-before)
}

// networkAt returns the group of the network of that many bits that contains addr.
func networkAt[T any](p *prefixes[netip.Prefix, T], addr netip.Addr, bits int) (g group[T], found bool) {
	network, err := addr.Prefix(bits)
	if err != nil {
		return g, false
	}
	return p.by.Get(network)
}

// lengths are the lengths of prefixes in use, longest first.
type lengths []lengthInUse

type lengthInUse struct{ length, prefixes int }

// with returns the lengths after more prefixes get this one; more may be negative.
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
