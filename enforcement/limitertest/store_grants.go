package limitertest

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// A grantSplit divides the costs of a group between windows and their grants, for a Store.
type grantSplit struct {
	group []enforcement.Charge
	own   []int64 // what the counter of each charge has left
	spent []int64 // by how much grants change the cost of each charge: above 0 on a grant, below 0 on its window
}

// newGrantSplit adds what grants have left to the lefts of their windows. costs has the sum of the costs
// for each key. In modes other than TakeUpTo, newGrantSplit also divides the costs between windows and
// grants.
func newGrantSplit(mode enforcement.Mode, group []enforcement.Charge, lefts []int64, costs map[enforcement.Key]int64) *grantSplit {
	g := &grantSplit{group: group, own: slices.Clone(lefts), spent: make([]int64, len(group))}
	for i := range group {
		n := grantsOf(group, i)
		if n == 0 {
			continue
		}
		if first := firstOf(group, group[i].Key); first < i {
			lefts[i] = lefts[first]
			continue
		}
		granted := int64(0)
		for k := i + 1; k <= i+n; k++ {
			granted += g.own[k] - g.on(group[k].Key)
		}
		lefts[i] = enforcement.WithGrants(g.own[i], granted)
		if mode == enforcement.Force || mode != enforcement.TakeUpTo && group[i].Meter.Admits(lefts[i], costs[group[i].Key]) {
			g.spend(i, n, costs[group[i].Key])
		}
	}
	return g
}

// spend charges the part of a cost that the window of charge i does not have left to the n grants after
// it.
func (g *grantSplit) spend(i, n int, cost int64) {
	need := cost - max(g.own[i], 0)
	for k := i + 1; k <= i+n && need > 0; k++ {
		units := min(need, g.own[k]-g.on(g.group[k].Key))
		g.spent[k] += units
		g.spent[i] -= units
		need -= units
	}
}

// shares divides the shares of a group in mode TakeUpTo.
func (g *grantSplit) shares(units, most int64) {
	for i := range g.group {
		g.spend(i, grantsOf(g.group, i), enforcement.ShareOf(g.group[i].Cost, units, most))
	}
}

// on returns by how much grants change what the group charges to the counter of a key.
func (g *grantSplit) on(key enforcement.Key) (sum int64) {
	for i := range g.group {
		if g.group[i].Key == key {
			sum += g.spent[i]
		}
	}
	return sum
}

// cost returns the cost that is charged for charge i. If several charges are on one window with grants,
// the first one has the sum of their costs.
func (g *grantSplit) cost(i int, costs map[enforcement.Key]int64) int64 {
	c := &g.group[i]
	switch {
	case c.Grant:
		return g.spent[i]
	case grantsOf(g.group, i) == 0:
		return c.Cost
	case firstOf(g.group, c.Key) < i:
		return 0
	}
	return costs[c.Key] + g.spent[i]
}
