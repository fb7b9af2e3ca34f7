package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
)

// exceptions.Service validates the rows of exceptions when it creates them, but another program may
// change them afterwards. Therefore the functions of this file validate everything in a row that
// does not depend on a plan. For example, the arithmetic of the limits is wrong for numbers that
// are out of range.

// lastInstant is the end of the year 9999, the latest time at which an exception may end.
var lastInstant = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)

// maxReason is the maximum length of a reason, in bytes.
const maxReason = exceptions.MaxReason * utf8.UTFMax

// readOverride validates a stored override and converts it to the form of package enforcement.
// newest is the newest revision in the database; the revision of the override must not be
// higher.
func readOverride(r *exceptions.Override, newest int64) (enforcement.Override, error) {
	o := r.Spec()
	o.From = micros(r.CreatedAt)
	var err error
	if o.Until, err = validateCommon(r.Policy, r.Reason, r.ExpiresAt); err != nil {
		return o, err
	}
	if o.From == 0 || o.From >= o.Until {
		return o, errors.New("it must begin before it ends")
	}
	if r.Revision < 1 || r.Revision > newest {
		return o, fmt.Errorf("revision %d is not a revision", r.Revision)
	}
	if err := validateScope(&o); err != nil {
		return o, err
	}
	return o, validateNumbers(&o)
}

// validateScope validates the attribute, the value and the prefix of an override. It replaces an IP
// address by its canonical form.
func validateScope(o *enforcement.Override) (err error) {
	switch {
	case o.Attribute == "" && o.Value+o.Prefix != "":
		return errors.New("a value without an attribute")
	case o.Attribute == "":
		return nil
	case (o.Value == "") == (o.Prefix == ""):
		return errors.New("it must have either a value or a prefix")
	case o.Value != "":
		o.Value, err = canonical(o.Attribute, o.Value, false)
	default:
		o.Prefix, err = canonical(o.Attribute, o.Prefix, true)
	}
	return err
}

// validateNumbers validates the factor and the limits of an override, as far as that is possible
// without the plan. The compiler of exceptions later compares them with the limits of the plan.
func validateNumbers(o *enforcement.Override) error {
	if o.Factor < 0 || o.Factor > enforcement.MaxFactor {
		return fmt.Errorf("factor %d is not within 1 and %d thousandths", o.Factor, enforcement.MaxFactor)
	}
	if (o.Factor == 0) == (len(o.Limits) == 0) {
		return errors.New("it must have either a factor or limits")
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

func readListEntry(r *exceptions.Entry) (enforcement.ListEntry, error) {
	n := enforcement.ListEntry{ID: r.ID, Attribute: r.Attribute, Value: r.Value, Reason: r.Reason, Until: micros(r.ExpiresAt)}
	if r.List != exceptions.Deny && r.List != exceptions.Allow {
		return n, fmt.Errorf("list %.64q is neither deny nor allow", r.List)
	}
	var err error
	if n.Value, err = canonical(r.Attribute, r.Value, true); err != nil {
		return n, err
	}
	return n, validateReasonAndEnd(r.Reason, r.ExpiresAt)
}

func readBlock(r *exceptions.Block) (enforcement.Block, error) {
	block := enforcement.Block{ID: r.ID, Policy: r.Policy, Reason: r.Reason}
	var err error
	if block.Until, err = validateCommon(r.Policy, r.Reason, r.ExpiresAt); err != nil {
		return block, err
	}
	block.Key, err = readKey(r.Key)
	return block, err
}

// readKey validates the values of a key and returns them in canonical form, sorted by name.
func readKey(key map[string]string) (list []enforcement.Attribute, err error) {
	if len(key) > enforcement.MaxAttributes {
		return nil, fmt.Errorf("a key of %d values", len(key))
	}
	for _, name := range slices.Sorted(maps.Keys(key)) {
		value, err := canonical(name, key[name], false)
		if err != nil {
			return nil, err
		}
		list = append(list, enforcement.Attribute{Name: name, Value: value})
	}
	return list, nil
}

// readGrant validates a stored grant and converts it to the form of package enforcement. newest is the
// newest revision in the database; the revision of the grant must not be higher.
func readGrant(r *exceptions.Grant, newest int64) (enforcement.Grant, error) {
	g := r.Spec()
	_, err := validateCommon(r.Policy, r.Reason, r.ExpiresAt)
	switch {
	case err != nil:
		return g, err
	case !nameForm.MatchString(r.Limit):
		return g, fmt.Errorf("limit %.64q is not a name", r.Limit)
	case r.Units < 1 || r.Units > enforcement.MaxGrantUnits:
		return g, fmt.Errorf("%d units are not within 1 and %d", r.Units, int64(enforcement.MaxGrantUnits))
	case r.CreatedAt.IsZero() || !r.CreatedAt.Before(r.ExpiresAt):
		return g, errors.New("it must begin before it ends")
	case r.Revision < 1 || r.Revision > newest:
		return g, fmt.Errorf("revision %d is not a revision", r.Revision)
	}
	g.Key, err = readKey(r.Key)
	return g, err
}

// validateCommon validates the fields that overrides and blocks have in common. until is the end of
// the exception in microseconds since the epoch.
func validateCommon(policy, reason string, end time.Time) (until int64, err error) {
	switch {
	case end.IsZero():
		return 0, errors.New("it has no end")
	case !slugForm.MatchString(policy):
		return 0, fmt.Errorf("policy %.64q is not a slug", policy)
	}
	return micros(end), validateReasonAndEnd(reason, end)
}

func validateReasonAndEnd(reason string, end time.Time) error {
	switch {
	case len(reason) > maxReason:
		return fmt.Errorf("a reason of %d bytes is too long", len(reason))
	case end.After(lastInstant):
		return errors.New("its end is beyond the year 9999")
	}
	return nil
}

// canonical validates the value of an attribute and returns its canonical form. If networks is
// true, the value of the attribute ip may also be a network.
func canonical(attribute, value string, networks bool) (string, error) {
	if attribute == enforcement.IPNetwork {
		return "", fmt.Errorf("%s is not an attribute", attribute)
	}
	if fault := enforcement.AttributeNameFault(attribute); fault != "" {
		return "", fmt.Errorf("the attribute name %.64q %s", attribute, fault)
	}
	out, fault := exceptions.CanonicalValue(attribute, value, networks)
	if fault != "" {
		return "", fmt.Errorf("the value %.64q of %q %s", value, attribute, fault)
	}
	return out, nil
}
