package plans

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// attributeIP is the one typed attribute; countByIPNet groups IPv6 by its /64.
const (
	attributeIP  = "ip"
	countByIPNet = "ip/64"
)

// Normalise fills every default and gives patterns, methods and addresses their
// one spelling; the argument stays as it is. What cannot be normalised stays
// too, for Validate to refuse. Normalising twice changes nothing more.
func Normalise(d Document) Document {
	d.Description = lineBreaks(d.Description)
	policies := make([]Policy, len(d.Policies))
	for i, p := range d.Policies {
		policies[i] = normalisePolicy(p)
	}
	d.Policies = policies
	return d
}

func normalisePolicy(p Policy) Policy {
	p.Description = lineBreaks(p.Description)
	p.Match = normaliseMatch(p.Match)
	p.CountBy = append([]string{}, p.CountBy...)
	p.Replaces = append([]string{}, p.Replaces...)
	if p.Missing == "" {
		p.Missing = enforcement.MissingShared
	}
	if p.Mode == "" {
		p.Mode = enforcement.PolicyEnforce
	}
	if p.OnFailure == "" {
		p.OnFailure = enforcement.OnFailureLocal
	}
	if p.Consistency == "" {
		p.Consistency = enforcement.Exact
	}
	p.Limits = nameLimits(p.Limits)
	return p
}

func normaliseMatch(m Match) Match {
	methods := make([]string, len(m.Methods))
	for i, name := range m.Methods {
		methods[i] = upperASCII(name)
	}
	m.Methods = methods
	if pattern, err := enforcement.ParsePattern(m.Path); err == nil {
		m.Path = pattern.String()
	}
	attributes := make(map[string]string, len(m.Attributes))
	for name, value := range m.Attributes {
		if addr, ok := canonicalIP(value); ok && name == attributeIP {
			value = addr
		}
		attributes[name] = value
	}
	m.Attributes = attributes
	return m
}

// nameLimits gives each limit without a name the first of l1, l2, … that no
// other has. Names once given are written into the document, so they stay with
// their limits when those are reordered.
func nameLimits(given []enforcement.Limit) []enforcement.Limit {
	limits := append([]enforcement.Limit{}, given...)
	taken := make(map[string]bool, len(limits))
	for _, l := range limits {
		taken[l.Name] = true
	}
	n := 1
	for i := range limits {
		if limits[i].Name != "" {
			continue
		}
		for taken["l"+strconv.Itoa(n)] {
			n++
		}
		limits[i].Name = "l" + strconv.Itoa(n)
		taken[limits[i].Name] = true
	}
	return limits
}

// canonicalIP gives the one spelling of an address without port and zone, as
// checks have it too.
func canonicalIP(text string) (string, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return "", false
	}
	return addr.Unmap().String(), true
}

// upperASCII leaves other letters alone: a method is ASCII, and what is not is
// refused as it was written.
func upperASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, s)
}

// lineBreaks makes those of HTML forms into those of everything else.
func lineBreaks(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
