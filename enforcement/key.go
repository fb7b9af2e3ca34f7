package enforcement

// A KeyPart is one place of a policy's count_by with the value of a request, for
// people to look at.
type KeyPart struct {
	Name    string // as count_by has it: ip, ip/64, or an attribute
	Value   string // ip/64: an IPv6 address as its /64 network
	Missing bool   // the request has no value
}

// KeyOf appends the key under which the rule counts a check: its values in the
// order of count_by; nothing for a rule that counts the whole tenant.
func (r *Rule) KeyOf(c *Check, to []KeyPart) []KeyPart {
	c = withIP(c)
	for i, s := range r.slots {
		value, ok := c.attribute(s.name)
		if ok && s.prefix && c.IP.Is6() {
			network, _ := c.IP.Prefix(64) // an error only when longer than the address
			value = network.String()
		}
		to = append(to, KeyPart{Name: r.CountBy[i], Value: value, Missing: !ok})
	}
	return to
}

// PartitionOf gives Key.Partition of a check, or of a key that is written as
// attributes: one of count_by that is not there is the place of a missing value.
// A key of ip/64 may also be written as the network that KeyOf gives.
func (r *Rule) PartitionOf(c *Check) [16]byte {
	return r.partition(withIP(c), new(Partition))
}

// withIP gives a check whose IP is parsed, as a check read from a request has it.
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
