package enforcement

// A KeyPart is one attribute of a key with its value, as pages show it.
type KeyPart struct {
	Name    string // entry of count_by: ip, ip/64, or another attribute
	Value   string // for ip/64, an IPv6 address becomes its /64 network
	Missing bool   // the request has no value
}

// KeyOf appends the key under which a rule counts a check: a part for each entry of the rule's
// count_by, in order. If count_by is empty, it appends nothing.
func (r *Rule) KeyOf(c *Check, to []KeyPart) []KeyPart {
	c = withIP(c)
	for i, s := range r.slots {
		value, ok := c.attribute(s.name)
		if ok && s.prefix && c.IP.Is6() {
			network, _ := c.IP.Prefix(64) // fails only if the prefix is longer than the address
			value = network.String()
		}
		to = append(to, KeyPart{Name: r.CountBy[i], Value: value, Missing: !ok})
	}
	return to
}

// PartitionOf returns the partition in which the rule counts a check. It only reads the
// attributes of the check. An attribute of count_by that the check does not have counts as
// missing. For ip/64, the value of ip may also be a network, as KeyOf returns it.
func (r *Rule) PartitionOf(c *Check) [16]byte {
	return r.partition(withIP(c), new(Partition))
}

// withIP returns a copy of c in which the field IP is set from the attribute ip. If IP is already
// set, or if the attribute is missing or invalid, it returns c itself.
func withIP(c *Check) *Check {
	if value, ok := c.attribute(ipAttribute); ok && !c.IP.IsValid() {
		if addr, _, err := CanonicalIP(value); err == nil {
			parsed := *c
			parsed.IP = addr
			return &parsed
		}
	}
	return c
}
