package enforcement

import (
	"net/netip"
	"slices"
	"strings"
)

// A list is a deny or an allow list by attribute, in the order of their names.
type list []listOf

// listOf is a list's entries of one attribute.
type listOf struct {
	attribute string
	exact     map[string]*ListEntry
	networks  networks[*ListEntry] // of ip
}

// list sorts the entries of a list in. Of several with one value the one that
// holds longest stays: while any of them is in force, it is.
func (c *steeringCompiler) list(entries []ListEntry) list {
	var l list
	for i := range entries {
		e := &entries[i]
		at := slices.IndexFunc(l, func(of listOf) bool { return of.attribute == e.Attribute })
		if at < 0 {
			at = len(l)
			l = append(l, listOf{attribute: e.Attribute, exact: make(map[string]*ListEntry)})
		}
		if err := l[at].add(e); err != nil {
			c.fault(e.ID, err)
		}
	}
	l = slices.DeleteFunc(l, func(of listOf) bool { return len(of.exact) == 0 && of.networks.empty() })
	slices.SortFunc(l, func(a, b listOf) int { return strings.Compare(a.attribute, b.attribute) })
	if len(l) == 0 {
		return nil
	}
	return l
}

func (of *listOf) add(e *ListEntry) error {
	if of.attribute != ipAttribute {
		of.exact[e.Value] = longerListed(of.exact[e.Value], e)
		return nil
	}
	network, canonical, err := ParseNetwork(e.Value)
	if err != nil {
		return err
	}
	if network.IsSingleIP() {
		of.exact[canonical] = longerListed(of.exact[canonical], e)
		return nil
	}
	of.networks.put(network, longerListed(of.networks.get(network), e))
	return nil
}

func longerListed(a, b *ListEntry) *ListEntry {
	if a == nil || a.Until != 0 && (b.Until == 0 || b.Until > a.Until) {
		return b
	}
	return a
}

// find gives the entry in force that a check meets, or nil: by the attributes'
// names, an exact value before networks, a longer network before a shorter.
func (l list) find(c *Check, now int64) *ListEntry {
	for i := range l {
		value, ok := c.attribute(l[i].attribute)
		if !ok {
			continue
		}
		if e := l[i].exact[value]; e != nil && lasts(e.Until, now) {
			return e
		}
		for _, bits := range l[i].networks.lengths {
			if e := l[i].networks.at(c.IP, bits); e != nil && lasts(e.Until, now) {
				return e
			}
		}
	}
	return nil
}

// lasts reports whether what holds until an instant (0: without an end) does now.
func lasts(until, now int64) bool { return until == 0 || now < until }

// networks are values by network, found by one look for each length in use.
type networks[V any] struct {
	by      map[netip.Prefix]V
	lengths []int // in use, longest first
}

func (n *networks[V]) empty() bool { return len(n.by) == 0 }

func (n *networks[V]) get(network netip.Prefix) V { return n.by[network] }

func (n *networks[V]) put(network netip.Prefix, value V) {
	if n.by == nil {
		n.by = make(map[netip.Prefix]V)
	}
	n.by[network] = value
	if at, found := slices.BinarySearchFunc(n.lengths, network.Bits(), func(a, b int) int { return b - a }); !found {
		n.lengths = slices.Insert(n.lengths, at, network.Bits())
	}
}

// at gives the value of the network of a length that holds an address, or the
// zero value.
func (n *networks[V]) at(addr netip.Addr, bits int) (value V) {
	if network, err := addr.Prefix(bits); err == nil && network.IsValid() {
		return n.by[network]
	}
	return value
}
