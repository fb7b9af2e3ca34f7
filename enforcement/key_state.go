package enforcement

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// A CountedKey identifies the counters of one key of one policy, one for each limit.
type CountedKey struct {
	Rule *Rule
	// Key has values for the policy's count_by. An attribute that is not in Key counts as missing.
	// The value of ip may be a network, as KeyOf returns it for ip/64.
	Key []Attribute
}

// A KeyState has the current counters of one key of one policy, and the exceptions for
// the key.
type KeyState struct {
	// Override and Block are the override and the block in force for the key, by the clock of this node. They
	// are nil if there is none.
	Override *Override
	Block    *Block
	// Limits has the limits in force, in the order of the policy, with their counters.
	Limits []CounterState
}

// A CounterState is the current state of one limit's counter for one key.
type CounterState struct {
	Limit *RuleLimit
	// Meter is Limit.Meter for the calendar of the tenant.
	Meter *Meter
	// State is the state of the counter at the time that KeyStates returns (see Meter.Settle). It must be
	// used with Meter. For a log, State has all entries if the sum of the quotas of this log and of the logs
	// before it is at most 20,000. Otherwise State may have no entries.
	State State
	// Shared is set if the counter also counts other keys; see Charged.
	Shared bool
	// Grants has the grants of the limit for the key that have not ended, in the order in which they are
	// spent.
	Grants []GrantState

	grants []*grant
}

const (
	maxReadCharges = 4000   // the most charges in one request; every limiter decides so many in one step
	maxReadEntries = 20_000 // the most log entries in all states together: about 300 kB
)

// KeyStates returns the states of the counters of several keys of one tenant. It includes policies that
// are off or in shadow. It charges and records nothing. at is the time of the states by the limiter's
// clock, in microseconds since the epoch; it is 0 if the keys have no limits.
//
// KeyStates calls the limiter once. The limiter reads up to 4000 counters in one step. If it does not
// answer, KeyStates returns an error.
func (e *Engine) KeyStates(ctx context.Context, s *Subject, keys []CountedKey) (at int64, states []KeyState, err error) {
	states = make([]KeyState, len(keys))
	now, entries := e.now().UnixMicro(), int64(maxReadEntries)
	var charges []Charge
	for i := range keys {
		charges = states[i].read(charges, s, &keys[i], now, &entries)
	}
	if len(charges) == 0 {
		return 0, states, nil
	}
	var requests []Request
	for part := range slices.Chunk(charges, maxReadCharges) {
		requests = append(requests, Request{ID: e.newIDAt(now), Mode: Peek, Home: s.Home, MaxKeys: s.MaxKeys, Charges: part})
	}
	outcomes := make([]Outcome, len(requests))
	takeFrom(ctx, e.limiter, requests, outcomes)
	for i := range outcomes {
		if o := &outcomes[i]; !o.Verdict.Decided() {
			return 0, nil, o.undecidedError("read the counters of tenant " + s.Tenant)
		}
	}
	at = outcomes[len(outcomes)-1].At
	n := 0
	for i := range states {
		for k := range states[i].Limits {
			o, charge := &outcomes[n/maxReadCharges], &charges[n]
			l, charged := &states[i].Limits[k], &o.Charges[n%maxReadCharges]
			l.State, l.Shared = charged.State, charged.Shared
			if charge.Cost > 0 && charged.Fits {
				l.State = State{} // the whole quota fits, so the log is empty
			} else if o.At < at {
				l.State, _ = l.Meter.Settle(l.State, charge.Rev, at)
			}
			n++
			for _, g := range l.grants {
				o := &outcomes[n/maxReadCharges]
				l.Grants = append(l.Grants, grantStates([]*grant{g}, o.Charges[n%maxReadCharges:], o.At)...)
				n++
			}
		}
	}
	return at, states, nil
}

// read sets the exceptions that are in force for a key. It also appends a charge for each limit of the
// key; in the result of this charge, the limiter returns the state of the counter.
//
// The cost of a charge is 0, except for a log. For a log, a limiter returns only the entries that must
// leave before the cost fits. With a cost of the whole quota, it returns all entries. entries is the
// number of log entries that may still be requested in this call; read reduces it.
func (h *KeyState) read(charges []Charge, s *Subject, key *CountedKey, now int64, entries *int64) []Charge {
	r := key.Rule
	c := r.checkOf(key.Key)
	partition := r.partition(c, new(Partition))
	if exceptions := s.Exceptions.of(r); exceptions != nil {
		if b := exceptions.block(partition); b != nil && now < b.Until && r.Mode.InForce() {
			h.Block = b
		}
	}
	n := s.numbers(r, c, now)
	if n.override != nil {
		h.Override = n.override.Override
	}
	h.Limits = make([]CounterState, len(n.limits))
	for k := range n.limits {
		l := &n.limits[k]
		h.Limits[k].Limit, h.Limits[k].Meter = l, l.Meter.In(s.Calendar, now)
		charge := Charge{
			Key:   Key{Tenant: s.Number, Cell: l.Cell, Partition: partition},
			Meter: h.Limits[k].Meter,
			Rev:   n.revision(k),
		}
		if l.Algorithm == SlidingWindowLog && l.Quota <= *entries {
			charge.Cost = l.Quota
			*entries -= l.Quota
		}
		charges = append(charges, charge)
		if r.Mode == PolicyEnforce && l.Quota > 0 {
			h.Limits[k].grants = s.Exceptions.of(r).grantsOf(k, partition, now, nil)
			charges = appendGrants(charges, s, h.Limits[k].grants)
		}
	}
	return charges
}

// checkOf returns a check that the rule counts under key. If the value of ip in key is a network, the
// check has the first address of this network. An override of the whole network applies to this address
// too.
func (r *Rule) checkOf(key []Attribute) *Check {
	c := &Check{Attributes: key}
	for i, a := range key {
		if a.Name != ipAttribute {
			continue
		}
		if network, err := netip.ParsePrefix(a.Value); err == nil {
			c.Attributes = append([]Attribute(nil), key...)
			c.Attributes[i].Value = network.Addr().String()
		}
	}
	return withIP(c)
}

// undecidedError returns an error for an outcome without a decision. action describes
// the operation of the caller.
func (o *Outcome) undecidedError(action string) error {
	if o.Err != nil {
		return fmt.Errorf("%s: %w", action, o.Err)
	}
	return fmt.Errorf("%s: the limiter returned the verdict %q", action, o.Verdict)
}
