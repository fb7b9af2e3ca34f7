package enforcement

import (
	"context"
	"fmt"
	"net/netip"
)

// A CountedKey is one key of one policy, to be asked what it holds.
type CountedKey struct {
	Rule *Rule
	// Key has the values of count_by by the name of the attribute; one that is not
	// there is the place of a missing value. A key of ip/64 may also be written as
	// the network that KeyOf gives.
	Key []Attribute
}

// A KeyHolding is what a key holds.
type KeyHolding struct {
	// Override and Block are in force for the key by this node's clock; nil: none.
	Override *Override
	Block    *Block
	// Limits of the policy, in its order, with the numbers in force.
	Limits []LimitHolding
}

// A LimitHolding is the counter of one limit for one key.
type LimitHolding struct {
	Limit *RuleLimit
	// State is settled at the instant of the answer, and read by Limit.Meter. Of
	// logs it has every entry as long as the quotas of those before it and its own
	// come to no more than 20,000; of the others perhaps none.
	State State
}

// holdingCharges is how many counters a request asks at most: what every limiter
// takes in one step.
const holdingCharges = 4000

// holdingEntries is how many entries of logs are asked for at most: some 300 kB.
const holdingEntries = 20_000

// Usage says what keys of a subject's policies hold, whatever the mode of the
// policy, at an instant of the limiter's clock in microseconds since the epoch; 0
// when there was no limit to ask. It charges nothing, is not recorded, and asks
// the limiter in one call: for up to 4000 limits in one step, and at one instant.
// An error means that the limiter could not be asked.
func (e *Engine) Usage(ctx context.Context, s *Subject, keys []CountedKey) (at int64, held []KeyHolding, err error) {
	held = make([]KeyHolding, len(keys))
	now := e.now().UnixMicro()
	var charges []Charge
	entries := int64(holdingEntries)
	for i := range keys {
		charges = held[i].ask(charges, s, &keys[i], now, &entries)
	}
	if len(charges) == 0 {
		return 0, held, nil
	}
	var requests []Request
	for from := 0; from < len(charges); from += holdingCharges {
		to := min(from+holdingCharges, len(charges))
		requests = append(requests, Request{ID: e.idAt(now), Mode: Peek, Home: s.Home, Charges: charges[from:to]})
	}
	outcomes := make([]Outcome, len(requests))
	e.takeFrom(ctx, e.limiter, requests, outcomes)
	for i := range outcomes {
		if o := &outcomes[i]; !o.Verdict.Decided() {
			return 0, nil, o.notDecided("ask what keys of tenant " + s.Tenant + " hold")
		}
	}
	place := 0
	for i := range held {
		for k := range held[i].Limits {
			o, n := &outcomes[place/holdingCharges], place%holdingCharges
			l, c := &held[i].Limits[k], &o.Charges[n]
			l.State = c.State
			if charges[place].Cost > 0 && c.Fits {
				l.State = State{} // of an empty log, which could be charged whole
			} else if o.At < outcomes[len(outcomes)-1].At {
				l.State, _ = l.Limit.Meter.Settle(l.State, charges[place].Rev, outcomes[len(outcomes)-1].At)
			}
			place++
		}
	}
	return outcomes[len(outcomes)-1].At, held, nil
}

// ask fills in what is in force for a key, and appends the charges, of nothing,
// that ask what its limits hold. While entries are left to ask for, a log is asked
// for its quota: limiters hand out those that have to leave before that fits, which
// are all.
func (h *KeyHolding) ask(charges []Charge, s *Subject, key *CountedKey, now int64, entries *int64) []Charge {
	r := key.Rule
	c := r.checkOf(key.Key)
	partition := r.partition(c, new(Partition))
	if of := s.Exceptions.of(r); of != nil {
		if b := of.block(partition); b != nil && now < b.Until && r.Mode == PolicyEnforce {
			h.Block = b
		}
	}
	n := s.numbers(r, c, now)
	if n.override != nil {
		h.Override = n.override.Override
	}
	h.Limits = make([]LimitHolding, len(n.limits))
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

// checkOf gives a check that the rule counts under a key. A network stands for an
// address of it, so that it finds the overrides that are in force for all of it.
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

// notDecided is the error of an outcome of which the limiter said nothing.
func (o *Outcome) notDecided(what string) error {
	if o.Err != nil {
		return fmt.Errorf("%s: %w", what, o.Err)
	}
	return fmt.Errorf("%s: the limiter answered %s", what, o.Verdict)
}
