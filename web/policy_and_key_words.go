package web

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// ListWords returns "a", "a and b", "a, b and c".
func ListWords(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// MatchWords returns English words that say which requests a policy matches.
func MatchWords(m plans.Match) string {
	text := "requests"
	if len(m.Methods) > 0 {
		text = ListWords(m.Methods) + " requests"
	}
	if m.Path != "" && m.Path != "*" {
		text += " to " + m.Path
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		parts = append(parts, name+" is "+m.Attributes[name])
	}
	if len(parts) > 0 {
		text += " where " + ListWords(parts)
	}
	if text == "requests" {
		return "every request"
	}
	return text
}

// CountByWords returns English words for the keys of a policy, such as "each user". Each key has
// its own counter.
func CountByWords(by []string) string {
	if i := slices.Index(by, enforcement.IPNetwork); i >= 0 {
		by = slices.Clone(by)
		by[i] = "ip (IPv6 by its /64 network)"
	}
	switch len(by) {
	case 0:
		return "the whole tenant"
	case 1:
		return "each " + by[0]
	}
	return "each combination of " + ListWords(by)
}

// KeyFieldPrefix is the start of the name of a form field or a query parameter that contains an
// attribute of a key.
const KeyFieldPrefix = "k."

// Policies returns the policies in the plan of the tenant that the path names.
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

// KeyAttributes returns the names of the attributes by which a policy counts, without duplicates.
// In place of ip/64, it returns ip.
func KeyAttributes(countBy []string) []string {
	var list []string
	for _, name := range countBy {
		if name = enforcement.CountedAttribute(name); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// AppliesWords returns English words that say which requests a policy matches, and how it
// counts them.
func AppliesWords(p plans.Policy) string {
	return MatchWords(p.Match) + ", counted for " + CountByWords(p.CountBy)
}

// KeyFromForm returns a key of a policy from the fields of a form or an address. It leaves out
// attributes that have no value.
func KeyFromForm(q url.Values, p plans.Policy) map[string]string {
	key := map[string]string{}
	for _, name := range KeyAttributes(p.CountBy) {
		if value := q.Get(KeyFieldPrefix + name); value != "" {
			key[name] = value
		}
	}
	return key
}

// KeyQuery returns a key as query parameters.
func KeyQuery(key map[string]string) url.Values {
	q := url.Values{}
	for name, value := range key {
		q.Set(KeyFieldPrefix+name, value)
	}
	return q
}

// KeyWords returns English words for a key: "user 42, ip 192.0.2.1". For a policy without count_by,
// it returns "the whole tenant".
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

// KeyURL returns the address of the page about one key of a policy.
func KeyURL(t tenants.Tenant, policy string, key map[string]string) string {
	return AppendQuery(TenantURL(t, "/usage/")+url.PathEscape(policy), KeyQuery(key))
}

// AppendQuery adds parameters to an address.
func AppendQuery(address string, q url.Values) string {
	if len(q) == 0 {
		return address
	}
	if strings.Contains(address, "?") {
		return address + "&" + q.Encode()
	}
	return address + "?" + q.Encode()
}
