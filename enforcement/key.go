package enforcement

// A KeyPart is one attribute of a policy's key, with its value in a request. Pages
// display it.
type KeyPart struct {
	Name    string // entry of count_by: ip, ip/64, or another attribute
	Value   string // for ip/64, an IPv6 address becomes its /64 network
	Missing bool   // the request has no value
}

// KeyOf appends the key of a check: the values of the rule's count_by, in order. It
// appends nothing for a rule that counts the whole tenant.
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

// PartitionOf returns the partition in which the rule counts a check. The check may
// also consist only of the attributes of a key. An attribute of count_by that the check
// lacks counts as missing. For ip/64, the value of ip may be the network that KeyOf
// returns.
func (r *Rule) PartitionOf(c *Check) [16]byte {
	return r.partition(withIP(c), new(Partition))
}

// withIP returns the check with IP parsed from its ip attribute.
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
