package web

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// MatchWords say what a policy applies to.
func MatchWords(methods []string, path string, attributes int) string {
	words := strings.Join(methods, ", ")
	if words == "" {
		words = "any method"
	}
	if path == "" || path == "*" {
		words += " on any path"
	} else {
		words += " " + path
	}
	if attributes > 0 {
		words += " with certain attributes"
	}
	if len(methods) == 0 && (path == "" || path == "*") && attributes == 0 {
		return "every request"
	}
	return words
}

// CountByWords say by what a policy counts.
func CountByWords(by []string) string {
	if i := slices.Index(by, PrefixAttribute); i >= 0 {
		by = slices.Clone(by)
		by[i] = "ip (IPv6 by its /64)"
	}
	switch len(by) {
	case 0:
		return "for the whole tenant together"
	case 1:
		return "for each " + by[0]
	}
	return "for each " + strings.Join(by[:len(by)-1], ", ") + " and " + by[len(by)-1]
}

// KeyFieldPrefix is before the name of an attribute in forms and addresses.
const KeyFieldPrefix = "k."

// Policies are the policies that the tenant of the path follows.
func (w *Shell) Policies(c echo.Context) ([]plans.Policy, error) {
	d, err := w.PublishedDocument(c.Request().Context(), TenantOf(c).Plan)
	return d.Policies(), err
}

func PolicyBySlug(list []plans.Policy, slug string) (plans.Policy, bool) {
	i := slices.IndexFunc(list, func(p plans.Policy) bool { return p.Slug == slug })
	if i < 0 {
		return plans.Policy{}, false
	}
	return list[i], true
}

// KeyAttributes are the attributes that a policy counts by, each once.
func KeyAttributes(countBy []string) []string {
	var list []string
	for _, name := range countBy {
		name, _, _ = strings.Cut(name, "/64")
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// AppliesWords say what a policy matches and what it counts.
func AppliesWords(p plans.Policy) string {
	return MatchWords(p.Match.Methods, p.Match.Path, len(p.Match.Attributes)) + ", counted " + CountByWords(p.CountBy)
}

// KeyFromForm reads the key of a policy from a form or an address: what is empty was
// not sent.
func KeyFromForm(q url.Values, p plans.Policy) map[string]string {
	key := map[string]string{}
	for _, name := range KeyAttributes(p.CountBy) {
		if value := q.Get(KeyFieldPrefix + name); value != "" {
			key[name] = value
		}
	}
	return key
}

// KeyQuery is a key as an address has it.
func KeyQuery(key map[string]string) url.Values {
	q := url.Values{}
	for name, value := range key {
		q.Set(KeyFieldPrefix+name, value)
	}
	return q
}

// KeyWords say a key: "user 42, ip 192.0.2.1"; "the whole tenant" for the key of
// a policy that counts no attribute.
func KeyWords(key map[string]string, countBy []string) string {
	if len(countBy) == 0 && len(key) == 0 {
		return "the whole tenant"
	}
	var words []string
	for _, name := range KeyAttributes(countBy) {
		if value, sent := key[name]; sent {
			words = append(words, name+" "+value)
		} else {
			words = append(words, "no "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(key)) {
		if !slices.Contains(KeyAttributes(countBy), name) {
			words = append(words, name+" "+key[name])
		}
	}
	if len(words) == 0 {
		return "the whole tenant"
	}
	return strings.Join(words, ", ")
}

// KeyURL is the page of one counted key.
func KeyURL(t tenants.Tenant, policy string, key map[string]string) string {
	return AppendQuery(TenantURL(t, "/usage/")+url.PathEscape(policy), KeyQuery(key))
}

// AppendQuery adds to the query of an address.
func AppendQuery(address string, q url.Values) string {
	if len(q) == 0 {
		return address
	}
	if strings.Contains(address, "?") {
		return address + "&" + q.Encode()
	}
	return address + "?" + q.Encode()
}

// PrefixAttribute counts IPv6 addresses by their network: no request has it.
const PrefixAttribute = "ip/64"
