package requests

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/web"
)

// KeyLinks has the URLs of forms about a counted key. In these forms, the key is filled in.
type KeyLinks struct {
	Override, Reset, Block, Grant string
	Allow                         string // "" if the key has no attribute
	Attribute, Value              string // the first attribute of the key
}

// LinksOf returns the links for a key of a policy. countBy is the count_by of the policy. After
// a save, the form of an override leads back to the page from. If from is "", it leads to the
// list of overrides.
func LinksOf(slug, policy string, countBy []string, key map[string]string, from string) KeyLinks {
	var l KeyLinks
	of := web.KeyQuery(key)
	of.Set("policy", policy)
	override := url.Values{"policy": {policy}}
	if from != "" {
		override.Set("back", from)
	}
	for _, name := range web.KeyAttributes(countBy) {
		value, sent := key[name]
		if !sent || l.Attribute != "" {
			continue
		}
		l.Attribute, l.Value = name, value
		override.Set("attribute", name)
		if network := Network(value); name == "ip" && slices.Contains(countBy, enforcement.IPNetwork) && network != value {
			l.Value = network
		}
		if l.Value != value || name == "ip" && isNetwork(value) {
			override.Set("prefix", l.Value)
		} else {
			override.Set("value", value)
		}
	}
	base := "/tenants/" + slug
	l.Override, l.Reset, l.Block = base+"/overrides/new?"+override.Encode(), base+"/reset?"+of.Encode(), base+"/blocks/new?"+of.Encode()
	l.Grant = base + "/grants/new?" + of.Encode()
	if l.Attribute != "" {
		allow := url.Values{"list": {"allow"}, "attribute": {l.Attribute}, "value": {l.Value}}
		l.Allow = base + "/lists/new?" + allow.Encode()
	}
	return l
}

func isNetwork(value string) bool { return strings.Contains(value, "/") }

// Network returns the form in which a policy that counts by ip/64 counts an IP address. For an
// IPv6 address, that is its /64 network. For an IPv4 address, it is the address itself.
func Network(value string) string {
	if n, err := netip.ParsePrefix(value); err == nil {
		return n.Masked().String()
	}
	if a, err := netip.ParseAddr(value); err == nil && a.Is6() {
		n, _ := a.Prefix(64) // fails only if the address has fewer than 64 bits
		return n.String()
	}
	return value
}
