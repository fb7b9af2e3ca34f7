package envoy

import (
	"errors"
	"fmt"
	"strings"
)

// Domains has the tenancy of each domain of descriptors whose name is not the slug of its
// tenant.
type Domains map[string]Tenancy

// A Tenancy says how the descriptors of a domain name their tenant. Exactly one field is set.
type Tenancy struct {
	// Tenant is the slug or ID of the tenant of all descriptors.
	Tenant string
	// Key is the key of the descriptor entry whose value is the slug or ID of the tenant.
	Key string
}

// ParseDomains parses a list of domain=tenant and domain=@key, separated by commas. "" means none.
func ParseDomains(text string) (Domains, error) {
	domains := Domains{}
	for item := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		domain, tenant, _ := strings.Cut(strings.TrimSpace(item), "=")
		key, byEntry := strings.CutPrefix(tenant, "@")
		switch {
		case domain == "" || key == "":
			return nil, fmt.Errorf("%q must be domain=tenant, or domain=@key for the key of an entry that names the tenant", item)
		case domains[domain] != Tenancy{}:
			return nil, errors.New("has the domain " + domain + " twice")
		case byEntry:
			domains[domain] = Tenancy{Key: key}
		default:
			domains[domain] = Tenancy{Tenant: tenant}
		}
	}
	return domains, nil
}

// of returns how the descriptors of a domain name their tenant: by the name of the domain, unless a setting says
// otherwise.
func (d Domains) of(domain string) Tenancy {
	if t, ok := d[domain]; ok {
		return t
	}
	return Tenancy{Tenant: domain}
}
