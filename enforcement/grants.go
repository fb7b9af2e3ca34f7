package enforcement

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/cow"
)

// A Grant is a top-up of one limit of a tenant: units that can be spent once, until a time. A check is
// charged to the window of the limit first. If the window does not have enough left, the grants are
// charged with the rest. Grants that end first are charged first.
type Grant struct {
	ID     string // UUID
	Policy string // slug
	Limit  string // name
	// Key has values for the policy's count_by, as Block.Key has. If it is empty, all keys of the policy
	// share the units.
	Key   []Attribute
	Units int64
	// Revision is the control-plane revision at which the grant was made. If two grants have the same end,
	// the grant with the lower revision is spent first.
	Revision    int64
	From, Until int64 // in microseconds since the epoch; Until is not included
	Reason      string
}

// Bounds of grants.
const (
	// MaxGrantUnits is the maximum of Grant.Units.
	MaxGrantUnits = MaxQuota
	// MaxGrantsOfKey bounds the grants of a limit that have not ended. At most so many are for one key, and
	// at most so many are for all keys. It bounds the number of counters of a check.
	MaxGrantsOfKey = 16
)

// A grant is a compiled Grant.
type grant struct {
	*Grant
	meter *Meter
	key   [16]byte // Key.Partition of the counter
}

// is reports whether g and o were compiled from the same Grant.
func (g *grant) is(o *grant) bool { return g.Grant == o.Grant }

// before sorts grants in the order in which they are spent.
func (g *grant) before(o *grant) int {
	return cmp.Or(cmp.Compare(g.Until, o.Until), cmp.Compare(g.Revision, o.Revision), strings.Compare(g.ID, o.ID))
}

// effective returns the first MaxGrantsOfKey grants in rows.
func (g *grant) effective(rows []*grant) []*grant { return rows[:min(len(rows), MaxGrantsOfKey)] }

// A grantPlace identifies the grants of one limit of a rule for one key, or for all keys.
type grantPlace struct {
	limit     int // index in Rule.Limits
	all       bool
	partition [16]byte
}

// grantKey returns Key.Partition of the counter of a grant: its ID.
func grantKey(id string) (key [16]byte, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("%q is not a UUID", id)
	}
	return [16]byte(raw), nil
}

// compile returns the compiled form of a grant.
func (g *Grant) compile() (*grant, error) {
	key, err := grantKey(g.ID)
	switch {
	case err != nil:
		return nil, err
	case g.Units < 1 || g.Units > MaxGrantUnits || g.Until <= g.From || g.Revision < 1:
		return nil, fmt.Errorf("its units, its revision or its end is out of range")
	}
	return &grant{Grant: g, meter: GrantMeter(g.Units, g.From, g.Until, g.Revision), key: key}, nil
}

// grant adds a grant, or removes it.
func (c *exceptionsEdit) grant(g *Grant, remove bool) error {
	r, err := c.rule(g.Policy)
	if err != nil {
		return err
	}
	place := grantPlace{limit: slices.IndexFunc(r.Limits, func(l RuleLimit) bool { return l.Name == g.Limit }), all: len(g.Key) == 0}
	switch {
	case place.limit < 0:
		return fmt.Errorf("policy %q has no limit %q", g.Policy, g.Limit)
	case r.Limits[place.limit].Quota == 0:
		return fmt.Errorf("limit %q has the quota 0, which denies everything, also with a grant", g.Limit)
	case !r.Limits[place.limit].Grantable():
		return fmt.Errorf("limit %q is a %s: only a fixed_window can have grants", g.Limit, r.Limits[place.limit].Algorithm)
	case r.Mode != PolicyEnforce:
		return fmt.Errorf("policy %q denies nothing: its mode is %s", g.Policy, r.Mode)
	}
	for _, part := range g.Key {
		if !slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == part.Name }) {
			return fmt.Errorf("policy %q does not count by %q", g.Policy, part.Name)
		}
	}
	if !place.all {
		place.partition = r.PartitionOf(&Check{Attributes: g.Key})
	}
	made, err := g.compile()
	if err != nil {
		return err
	}
	change(c.by, &c.sorts, &c.writable(r).grants, place, made, remove)
	return nil
}

// Grantable reports whether the limit can have grants. A quota of 0 denies everything, also with a grant.
func (l Limit) Grantable() bool { return l.Algorithm == FixedWindow && l.Quota > 0 }

// grantsOf appends to list the grants of limit k of a rule that apply to a key and have not ended at now.
// They are in the order in which they are spent.
func (s *ruleExceptions) grantsOf(k int, partition [16]byte, now int64, list []*grant) []*grant {
	if s == nil || s.grants.Len() == 0 {
		return list
	}
	add := func(g *grant) {
		if now < g.Until {
			list = append(list, g)
		}
	}
	all, forAll := s.grants.Get(grantPlace{limit: k, all: true})
	own, forKey := s.grants.Get(grantPlace{limit: k, partition: partition})
	if forAll {
		all.each(add)
	}
	if forKey {
		own.each(add)
	}
	if forAll && forKey {
		slices.SortFunc(list, (*grant).before)
	}
	return list
}

// appendGrants appends charges on the counters of grants.
func appendGrants(charges []Charge, s *Subject, grants []*grant) []Charge {
	for _, g := range grants {
		charges = append(charges, g.charge(s))
	}
	return charges
}

func (g *grant) charge(s *Subject) Charge {
	return Charge{Key: Key{Tenant: s.Number, Cell: GrantCell, Partition: g.key}, Meter: g.meter, Rev: g.meter.Rev, Grant: true}
}

// A GrantState is a grant with the units that it has left.
type GrantState struct {
	*Grant
	Left int64
}

// grantStates returns the states of grants from the results of their charges at the time at.
func grantStates(grants []*grant, charged []Charged, at int64) []GrantState {
	var states []GrantState
	for i, g := range grants {
		if at < g.Until {
			states = append(states, GrantState{g.Grant, g.meter.Remaining(charged[i].State, at)})
		}
	}
	return states
}

// GrantsLeft returns the number of units that each of some grants of a tenant has left. It charges and
// records nothing. If the limiter does not answer, it returns an error.
func (e *Engine) GrantsLeft(ctx context.Context, s *Subject, grants []Grant) ([]int64, error) {
	left, now := make([]int64, len(grants)), e.now().UnixMicro()
	for from := 0; from < len(grants); from += maxReadCharges {
		part := grants[from:min(from+maxReadCharges, len(grants))]
		request := Request{ID: e.newIDAt(now), Mode: Peek, Home: s.Home, MaxKeys: s.MaxKeys}
		for i := range part {
			g, err := part[i].compile()
			if err != nil {
				return nil, fmt.Errorf("grant %s: %w", part[i].ID, err)
			}
			request.Charges = append(request.Charges, g.charge(s))
		}
		outcomes := make([]Outcome, 1)
		takeFrom(ctx, e.limiter, []Request{request}, outcomes)
		if !outcomes[0].Verdict.Decided() {
			return nil, outcomes[0].undecidedError("read the grants of tenant " + s.Tenant)
		}
		for i := range part {
			left[from+i] = request.Charges[i].Meter.Remaining(outcomes[0].Charges[i].State, outcomes[0].At)
		}
	}
	return left, nil
}

// fillGrants adds the units of grants to a limit of a decision. charges[0] is the charge of the limit,
// and the others are on the counters of its grants. charged has their results.
func (l *LimitState) fillGrants(charges []Charge, charged []Charged, at int64, mode Mode) {
	if l.Limit.Quota > 0 && (mode != Force || l.Allowed) {
		l.Remaining += grantsLeft(charges[1:], charged[1:], at, at)
	}
	l.until = 0 // RetryWithGrants knows it
	if l.Allowed {
		return
	}
	cost := charged[0].Cost
	if mode == TakeUpTo {
		cost = min(cost, 1)
	}
	l.RetryAfter = Never
	if micros, ok := RetryWithGrants(charges, charged, at, 0, cost); ok {
		l.RetryAfter = Milliseconds(micros)
	}
}

// ruleGrants has the grants of a rule by limit and key.
type ruleGrants = cow.Map[grantPlace, group[grant]]
