package plans

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// A Fate is what publishing does to the counts of a limit.
type Fate string

// The fates.
const (
	// Kept: the limit has the same identity and other numbers. Its counts stay and
	// the new numbers apply to them.
	Kept Fate = "kept"
	// Fresh: the limit is new, or its algorithm, count_by or anchor changes. It
	// counts from zero.
	Fresh Fate = "fresh"
	// Dropped: the document has no such limit any more.
	Dropped Fate = "dropped"
)

// A Recount is the fate of the counts of one limit when one document replaces
// another.
type Recount struct {
	Policy, Limit string // slug, name
	Fate          Fate
	// Because lists the fields whose change makes the counts Fresh: "algorithm",
	// "count_by", "anchor". It is empty for a limit that is new or dropped.
	Because []string
}

// Recounts returns a Recount for each limit that changes: first the limits of to in
// its order, then those that only from has. The match and the mode of a policy do
// not identify counters. A policy that is off counts nothing.
func Recounts(from, to Document) []Recount {
	before, after := counted(from), counted(to)
	was, is := byName(before), byName(after)
	var out []Recount
	for _, now := range after {
		old, there := was[now.name()]
		if !there {
			out = append(out, Recount{Policy: now.policy, Limit: now.limit.Name, Fate: Fresh})
			continue
		}
		switch because := parts(old, now); {
		case len(because) > 0:
			out = append(out, Recount{Policy: now.policy, Limit: now.limit.Name, Fate: Fresh, Because: because})
		case old.limit != now.limit:
			out = append(out, Recount{Policy: now.policy, Limit: now.limit.Name, Fate: Kept})
		}
	}
	for _, old := range before {
		if _, there := is[old.name()]; !there {
			out = append(out, Recount{Policy: old.policy, Limit: old.limit.Name, Fate: Dropped})
		}
	}
	return out
}

type count struct {
	policy  string
	countBy []string
	limit   enforcement.Limit
}

// counted returns the limits of the policies that are not off.
func counted(d Document) []count {
	var out []count
	for _, p := range d.c.Policies {
		if p.Mode == enforcement.PolicyOff {
			continue
		}
		for _, l := range p.Limits {
			if l.Algorithm.Bucket() && l.Burst == 0 {
				l.Burst = l.Quota
			}
			if !l.Algorithm.Windowed() {
				l.Anchor = enforcement.FirstHit
			}
			out = append(out, count{p.Slug, p.CountBy, l})
		}
	}
	return out
}

// name returns the slug of the policy and the name of the limit.
func (c *count) name() [2]string { return [2]string{c.policy, c.limit.Name} }

func byName(list []count) map[[2]string]count {
	out := make(map[[2]string]count, len(list))
	for _, c := range list {
		out[c.name()] = c
	}
	return out
}

// parts lists the parts of a cell's identity in which two limits of one name differ.
func parts(a, b count) []string {
	var out []string
	if a.limit.Algorithm != b.limit.Algorithm {
		out = append(out, "algorithm")
	}
	if !slices.Equal(a.countBy, b.countBy) {
		out = append(out, "count_by")
	}
	if a.limit.Anchor != b.limit.Anchor && a.limit.Algorithm == b.limit.Algorithm {
		out = append(out, "anchor")
	}
	return out
}
