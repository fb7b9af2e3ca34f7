package envoy

import (
	"errors"
	"fmt"
	"strings"
)

// Domains maps a domain of descriptors to its Tenancy. A domain that has the name of its tenant
// needs no entry.
type Domains map[string]Tenancy

// A Tenancy says which tenant the descriptors of a domain belong to. Exactly one field is set.
type Tenancy struct {
	// Tenant is the slug or ID of the tenant of all descriptors.
	Tenant string
	// Key is the key of the descriptor entry whose value is the slug or ID of the tenant.
	Key string
}

// ParseDomains parses a list of domain=tenant and domain=@key, separated by commas. "" is the empty
// list.
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

// of returns the Tenancy of a domain. A domain without an entry belongs to the tenant that has the name of the domain.
func (d Domains) of(domain string) Tenancy {
	if t, ok := d[domain]; ok {
		return t
	}
	return Tenancy{Tenant: domain}
}
