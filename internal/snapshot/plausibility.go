package snapshot

import (
	"cmp"
	"errors"
	"fmt"
)

// errHeld means that the database looks as if its data was lost or restored. Report.Held wraps it.
// The previous snapshot then stays in use until the state of the database changes or the node
// restarts.
var errHeld = errors.New("held for an operator")

// minForLossCheck is the minimum number of tenants, or of plans, for the following check: Compile
// rejects a state of the database that has lost more than half of them. With fewer objects,
// somebody may have deleted them in a trial installation.
const minForLossCheck = 20

// implausible returns an error if the stored state must be rejected before it is compiled. The
// state is rejected if its revision is lower than the revision of the previous snapshot, or if most
// objects have vanished without tombstones.
func (b *builder) implausible() error {
	if b.previous == nil {
		return nil
	}
	if b.changes.Revision < b.previous.revision {
		return fmt.Errorf("%w: the revision went back from %d to %d", errHeld, b.previous.revision, b.changes.Revision)
	}
	if !b.full {
		return nil
	}
	present := map[object]bool{}
	for i := range b.changes.Tenants {
		present[object{"tenant", b.changes.Tenants[i].ID}] = true
	}
	for i := range b.changes.Plans {
		present[object{"plan", b.changes.Plans[i].ID}] = true
	}
	for _, t := range b.changes.Removed {
		present[object{t.Kind, t.ID}] = true
	}
	had, lost := map[string]int{}, map[string]int{}
	count := func(kind, id string) {
		had[kind]++
		if !present[object{kind, id}] {
			lost[kind]++
		}
	}
	for id, t := range b.previous.tenants.All {
		if t.row.known {
			count("tenant", id)
		}
	}
	for id := range b.previous.plans {
		count("plan", id)
	}
	for _, kind := range []string{"tenant", "plan"} {
		had, lost := had[kind], lost[kind]
		switch {
		case lost > 0 && lost == had:
			return fmt.Errorf("%w: all %d %ss vanished without an edit that removed them", errHeld, had, kind)
		case had >= minForLossCheck && lost > had/2:
			return fmt.Errorf("%w: %d of %d %ss vanished without an edit that removed them", errHeld, lost, had, kind)
		}
	}
	return nil
}

// tooMuch returns an error if the new snapshot must be rejected after it is compiled. It is
// rejected if it has too many objects, or if all quotas of the previous snapshot became 0.
func (b *builder) tooMuch() error {
	c := b.Counts()
	for _, m := range []struct {
		what    string
		n, most int
	}{
		{"tenants", c.Tenants, cmp.Or(b.o.MaxTenants, 1_000_000)},
		{"keys", c.Keys, cmp.Or(b.o.MaxKeys, 2_000_000)},
		{"policies", c.Policies, cmp.Or(b.o.MaxPolicies, 1_000_000)},
		{"overrides, list entries, blocks and changes", b.size.all(), cmp.Or(b.o.MaxExceptions, 5_000_000)},
	} {
		if m.n > m.most {
			return fmt.Errorf("%w: %d %s are more than the maximum of %d", errHeld, m.n, m.what, m.most)
		}
	}
	if b.previous == nil || c.Tenants < minForLossCheck {
		return nil
	}
	_, before := countLimits(b.previous.plans)
	limits, positive := countLimits(b.plans)
	if before > 0 && limits > 0 && positive == 0 {
		return fmt.Errorf("%w: every quota of every plan became 0", errHeld)
	}
	return nil
}

func countLimits(all map[string]*plan) (limits, positive int) {
	for _, p := range all {
		limits += p.limits
		positive += p.positive
	}
	return limits, positive
}
