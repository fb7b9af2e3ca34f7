package enforcement

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/cow"
)

// A list is the compiled deny list or allow list of a tenant, sorted by attribute.
type list []*listOf

// A listOf has those entries of a list that name one attribute.
type listOf struct {
	attribute string
	exact     cow.Map[string, group[ListEntry]]
	networks  prefixes[netip.Prefix, ListEntry] // of ip
	owner     *cow.Owner
}

// entries returns the entries of l that name an attribute, in a copy that this edit may change. It
// makes the copy only if this edit has not made it before.
func (l *list) entries(by *cow.Owner, attribute string) *listOf {
	at, found := slices.BinarySearchFunc(*l, attribute, func(of *listOf, name string) int { return strings.Compare(of.attribute, name) })
	if !found {
		*l = slices.Insert(slices.Clip(*l), at, &listOf{attribute: attribute, owner: by})
	}
	if of := (*l)[at]; of.owner != by {
		own := *of
		own.owner = by
		*l = slices.Clone(*l)
		(*l)[at] = &own
	}
	return (*l)[at]
}

// list adds an entry to l or, if remove is true, removes it. If several entries have the same
// value, only the one that ends last has an effect.
func (c *exceptionsEdit) list(l *list, e *ListEntry, remove bool) error {
	value, network := e.Value, netip.Prefix{}
	if e.Attribute == ipAttribute {
		var err error
		if network, value, err = ParseNetwork(e.Value); err != nil {
			return err
		}
	}
	of := l.entries(c.by, e.Attribute)
	if network.IsValid() && !network.IsSingleIP() {
		changePrefix(c.by, &c.sorts, &of.networks, network, network.Bits(), e, remove)
	} else {
		change(c.by, &c.sorts, &of.exact, value, e, remove)
	}
	return nil
}

// prune returns the list without the attributes that have no entries left.
func (l list) prune() list {
	l = slices.DeleteFunc(slices.Clone(l), func(of *listOf) bool { return of.exact.Len() == 0 && of.networks.by.Len() == 0 })
	if len(l) == 0 {
		return nil
	}
	return l
}

func (e *ListEntry) is(o *ListEntry) bool { return e == o }

// before sorts entries with the same value by their end. The entry that ends last comes first, and
// only this entry has an effect.
func (e *ListEntry) before(o *ListEntry) int {
	if (e.Until == 0) != (o.Until == 0) {
		if e.Until == 0 {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(o.Until, e.Until), strings.Compare(e.ID, o.ID))
}

func (e *ListEntry) effective(rows []*ListEntry) []*ListEntry { return rows[:1] }

// find returns an entry in force that matches a check, or nil. It tries attributes in the order of
// their names. For ip, it tries addresses first and then networks, the smallest first.
func (l list) find(c *Check, now int64) *ListEntry {
	for _, of := range l {
		value, ok := c.attribute(of.attribute)
		if !ok {
			continue
		}
		if g, found := of.exact.Get(value); found && inForce(g.first().Until, now) {
			return g.first()
		}
		for _, bits := range of.networks.lengths {
			if g, found := networkAt(&of.networks, c.IP, bits.length); found && inForce(g.first().Until, now) {
				return g.first()
			}
		}
	}
	return nil
}

// inForce reports whether an exception that ends at until is in force at now. An until of 0 means
// that it never ends.
func inForce(until, now int64) bool { return until == 0 || now < until }
