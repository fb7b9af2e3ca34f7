package enforcement

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// A CountedKey is one key of one policy.
type CountedKey struct {
	Rule *Rule
	// Key has the values of count_by by attribute name. An attribute that is not in
	// Key counts as missing. The value of ip may be a network, as KeyOf returns it
	// for ip/64.
	Key []Attribute
}

// A KeyState is the state of a key.
type KeyState struct {
	// Override and Block are in force for the key by this node's clock; nil: none.
	Override *Override
	Block    *Block
	// Limits are those of the policy, in its order, with the numbers in force.
	Limits []CounterState
}

// A CounterState is the counter of one limit for one key.
type CounterState struct {
	Limit *RuleLimit
	// State is settled at the instant of the answer. Limit.Meter reads it. A log has
	// all its entries if its quota and those of the logs before it add up to at most
	// 20,000. Otherwise it may have no entries.
	State State
}

const (
	maxReadCharges = 4000   // charges in one request: every limiter decides them in one step
	maxReadEntries = 20_000 // log entries in all answers: about 300 kB
)

// KeyStates returns the states of keys of a subject's policies, in any mode of the
// policy. at is their instant by the limiter's clock, in microseconds since the
// epoch; it is 0 if the keys have no limits. KeyStates charges and records nothing.
// It calls the limiter once. It reads up to 4000 limits in one step, at one
// instant. An error means that the limiter did not answer.
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
		requests = append(requests, Request{ID: e.newIDAt(now), Mode: Peek, Home: s.Home, Charges: part})
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
			l.State = charged.State
			if charge.Cost > 0 && charged.Fits {
				l.State = State{} // an empty log: the whole quota would fit
			} else if o.At < at {
				l.State, _ = l.Limit.Meter.Settle(l.State, charge.Rev, at)
			}
			n++
		}
	}
	return at, states, nil
}

// read sets the exceptions in force for a key, and appends a charge for each of
// its limits. The charges cost 0, except those of logs: a limiter returns the
// entries that must leave before the cost fits. A cost of the whole quota returns
// all entries. entries is how many may still be requested in this way.
func (h *KeyState) read(charges []Charge, s *Subject, key *CountedKey, now int64, entries *int64) []Charge {
	r := key.Rule
	c := r.checkOf(key.Key)
	partition := r.partition(c, new(Partition))
	if exceptions := s.Exceptions.of(r); exceptions != nil {
		if b := exceptions.block(partition); b != nil && now < b.Until && r.Mode == PolicyEnforce {
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
		h.Limits[k].Limit = l
		charge := Charge{
			Key:   Key{Tenant: s.Number, Cell: l.Cell, Partition: partition},
			Meter: l.Meter,
			Rev:   n.revision(k),
		}
		if l.Algorithm == SlidingWindowLog && l.Quota <= *entries {
			charge.Cost = l.Quota
			*entries -= l.Quota
		}
		charges = append(charges, charge)
	}
	return charges
}

// checkOf returns a check that the rule counts under a key. It replaces a network
// by its first address, which meets the overrides of the whole network.
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

// undecidedError returns an error for an outcome without a decision. action is
// what the caller was doing.
func (o *Outcome) undecidedError(action string) error {
	if o.Err != nil {
		return fmt.Errorf("%s: %w", action, o.Err)
	}
	return fmt.Errorf("%s: the limiter returned the verdict %q", action, o.Verdict)
}
