package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
)

// What exceptions.Service has refused never comes here, but rows may have been
// written past it. Whatever a row says that does not depend on a plan is asked
// again, so that no number outside the bounds reaches the arithmetic.

// lastInstant is beyond any end that can be set: the end of the year 9999.
var lastInstant = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)

// ipAttribute is the one attribute with a form of its own; ipNetAttribute is a
// way of counting by it, and no attribute.
const (
	ipAttribute    = "ip"
	ipNetAttribute = enforcement.IPNetwork
)

// maxReason is how many bytes of a reason are kept.
const maxReason = exceptions.MaxReason * utf8.UTFMax

// judgeOverride puts an override into the words of enforcement. newest is the
// revision of the world that it is part of.
func judgeOverride(r *exceptions.Override, newest int64) (enforcement.Override, error) {
	none := enforcement.Override{}
	o := enforcement.Override{
		ID: r.ID, Policy: r.Policy, Attribute: r.Attribute, Value: r.Value, Prefix: r.Prefix,
		Factor: r.Factor, Limits: r.Limits, Revision: r.Revision, Reason: r.Reason,
	}
	var err error
	if o.Until, err = judgeEnd(r.ExpiresAt, true); err != nil {
		return none, err
	}
	if err := judgePolicyAndReason(r.Policy, r.Reason); err != nil {
		return none, err
	}
	if o.From = micros(r.CreatedAt); o.From == 0 || o.From >= o.Until {
		return none, fmt.Errorf("it does not begin before it ends")
	}
	if r.Revision < 1 || r.Revision > newest {
		return none, fmt.Errorf("revision %d is not a revision", r.Revision)
	}
	if err := judgeScope(&o); err != nil {
		return none, err
	}
	return o, judgeNumbers(&o)
}

// judgeScope asks for which keys an override is, and puts an ip into its
// canonical form.
func judgeScope(o *enforcement.Override) error {
	if o.Attribute == "" {
		if o.Value != "" || o.Prefix != "" {
			return fmt.Errorf("a value without an attribute")
		}
		return nil
	}
	if err := judgeAttribute(o.Attribute); err != nil {
		return err
	}
	if (o.Value == "") == (o.Prefix == "") {
		return fmt.Errorf("it has not one of a value and a prefix")
	}
	if o.Attribute != ipAttribute {
		return judgeText("value", o.Value+o.Prefix)
	}
	var err error
	if o.Value != "" {
		_, o.Value, err = enforcement.CanonicalIP(o.Value)
		return err
	}
	_, o.Prefix, err = enforcement.ParseNetwork(o.Prefix)
	return err
}

// judgeNumbers holds an override to the bounds within which the arithmetic is
// exact. What depends on the limit that they are for is asked when they are
// compiled.
func judgeNumbers(o *enforcement.Override) error {
	if o.Factor < 0 || o.Factor > enforcement.MaxFactor {
		return fmt.Errorf("factor %d is not within 1 and %d thousandths", o.Factor, enforcement.MaxFactor)
	}
	if (o.Factor == 0) == (len(o.Limits) == 0) {
		return fmt.Errorf("it has not one of a factor and limits")
	}
	names := make(map[string]bool, len(o.Limits))
	for _, l := range o.Limits {
		if !nameForm.MatchString(l.Name) || names[l.Name] {
			return fmt.Errorf("limit %.64q is not a name, or occurs twice", l.Name)
		}
		if faults := l.Validate(enforcement.Limit{}); len(faults) > 0 {
			return fmt.Errorf("limit %s: %s %s", l.Name, faults[0].Pointer[1:], faults[0].Message)
		}
		names[l.Name] = true
	}
	return nil
}

func judgeEntry(r *exceptions.Entry) (enforcement.ListEntry, error) {
	none := enforcement.ListEntry{}
	n := enforcement.ListEntry{ID: r.ID, Attribute: r.Attribute, Value: r.Value, Reason: r.Reason}
	if r.List != exceptions.Deny && r.List != exceptions.Allow {
		return none, fmt.Errorf("list %.64q is neither deny nor allow", r.List)
	}
	if err := judgeAttribute(r.Attribute); err != nil {
		return none, err
	}
	var err error
	if r.Attribute == ipAttribute {
		_, n.Value, err = enforcement.ParseNetwork(r.Value)
	} else {
		err = judgeText("value", r.Value)
	}
	if err != nil {
		return none, err
	}
	if len(r.Reason) > maxReason {
		return none, fmt.Errorf("a reason of %d bytes is too long", len(r.Reason))
	}
	n.Until, err = judgeEnd(r.ExpiresAt, false)
	return n, err
}

func judgeBlock(r *exceptions.Block) (enforcement.Block, error) {
	none := enforcement.Block{}
	block := enforcement.Block{ID: r.ID, Policy: r.Policy, Reason: r.Reason}
	var err error
	if block.Until, err = judgeEnd(r.ExpiresAt, true); err != nil {
		return none, err
	}
	if err := judgePolicyAndReason(r.Policy, r.Reason); err != nil {
		return none, err
	}
	if len(r.Key) > enforcement.MaxAttributes {
		return none, fmt.Errorf("a key of %d values", len(r.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Key)) {
		value := r.Key[name]
		if err := judgeAttribute(name); err != nil {
			return none, err
		}
		if name == ipAttribute {
			_, value, err = enforcement.CanonicalIP(value)
		} else {
			err = judgeText("value", value)
		}
		if err != nil {
			return none, fmt.Errorf("attribute %q: %w", name, err)
		}
		block.Key = append(block.Key, enforcement.Attribute{Name: name, Value: value})
	}
	return block, nil
}

func judgePolicyAndReason(policy, reason string) error {
	if !slugForm.MatchString(policy) {
		return fmt.Errorf("policy %.64q is not a slug", policy)
	}
	if len(reason) > maxReason {
		return fmt.Errorf("a reason of %d bytes is too long", len(reason))
	}
	return nil
}

// judgeEnd gives an end in microseconds since the epoch; 0: without one, which
// must may forbid.
func judgeEnd(end time.Time, must bool) (int64, error) {
	switch {
	case end.IsZero() && must:
		return 0, fmt.Errorf("it has no end")
	case end.After(lastInstant):
		return 0, fmt.Errorf("its end is beyond the year 9999")
	}
	return micros(end), nil
}

func judgeAttribute(name string) error {
	if name == ipNetAttribute {
		return fmt.Errorf("%s is not an attribute", ipNetAttribute)
	}
	if fault := enforcement.AttributeNameFault(name); fault != "" {
		return fmt.Errorf("the attribute name %.64q %s", name, fault)
	}
	return nil
}

func judgeText(what, text string) error {
	if _, fault := enforcement.CanonicalValue("", text); fault != "" {
		return fmt.Errorf("the %s %.64q %s", what, text, fault)
	}
	return nil
}
