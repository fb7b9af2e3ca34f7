package plans

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// A Fate says what happens to the counters of a limit when another version is published.
type Fate string

// The fates of counters.
const (
	// Kept means that the counters stay. The new quota, window and burst apply to them in the way
	// that CarryOver says. The algorithm, count_by and anchor of the limit are unchanged, or the
	// algorithm changed between token_bucket and gcra.
	Kept Fate = "kept"
	// Fresh means that the limit starts with unused counters: the limit is new, or its algorithm,
	// count_by or anchor changed.
	Fresh Fate = "fresh"
	// Dropped means that the new version does not contain the limit.
	Dropped Fate = "dropped"
)

// A Recount says what happens to the counters of one limit when one document replaces another.
type Recount struct {
	Policy, Limit string // slug of the policy, name of the limit
	Fate          Fate
	// Because lists the changed fields that are the reason for new counters: "algorithm",
	// "count_by" or "anchor". It is empty if the limit is new, or if Fate is not Fresh.
	Because []string
	// CarryOver says how counters with the fate Kept continue under the new numbers. It is
	// CarryKeep if the quota, the window and the burst do not change.
	CarryOver enforcement.CarryOver
}

// Recounts returns a Recount for each limit that differs between two documents. The limits of to
// come first, in the order of to. The limits that are only in from follow. Policies in mode off
// have no counters. If only the match or the mode of a policy changes, its counters stay.
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
			r := Recount{Policy: now.policy, Limit: now.limit.Name, Fate: Kept}
			if old.limit.Numbers() != now.limit.Numbers() {
				r.CarryOver = now.limit.CarryOver
			}
			out = append(out, r)
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

// counted returns the limits of all policies whose mode is not off. For a bucket without a burst,
// it sets the burst to the quota.
func counted(d Document) []count {
	var out []count
	for _, p := range d.c.Policies {
		if !p.Mode.Counts() {
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

// name returns the slug of the policy and the name of the limit. Recounts compares limits of
// two documents that have the same name.
func (c *count) name() [2]string { return [2]string{c.policy, c.limit.Name} }

func byName(list []count) map[[2]string]count {
	out := make(map[[2]string]count, len(list))
	for _, c := range list {
		out[c.name()] = c
	}
	return out
}

// parts returns the names of the fields that identify counters and that differ between the limits a
// and b.
func parts(a, b count) []string {
	var out []string
	sameCounter := a.limit.Algorithm.CountsAs() == b.limit.Algorithm.CountsAs()
	if !sameCounter {
		out = append(out, "algorithm")
	}
	if !slices.Equal(a.countBy, b.countBy) {
		out = append(out, "count_by")
	}
	if a.limit.Anchor != b.limit.Anchor && sameCounter {
		out = append(out, "anchor")
	}
	return out
}
