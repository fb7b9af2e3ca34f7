package api

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// errCustomerKey is the error if the request has no valid API key of a tenant with the scope
// identify. It is the same for a missing, an unknown, and an expired key.
var errCustomerKey = problem.WithCode(problem.Unauthenticated, "customer_key", "no tenant has the API key of this request")

// tenantFrom returns the slug or ID of the tenant that the option tenant selects. The option has one of these forms: a
// slug or an ID; header:Header, for a header that the proxy sets; host:*.example.com, for the part of the host that the
// asterisk matches; key:header:Header or key:cookie:Cookie, for an API key of the tenant, which the client sends.
func (a *API) tenantFrom(r *http.Request, who Caller, o original) (string, error) {
	text := o.option("tenant")
	kind, from, _ := strings.Cut(text, ":")
	switch kind {
	case "header":
		return oneHeader(r, from)
	case "host":
		prefix, suffix, ok := strings.Cut(from, "*")
		if !ok || !strings.HasPrefix(suffix, ".") || strings.Contains(suffix, "*") {
			return "", malformedAt("tenant", "must be host:*.example.com, with one asterisk for a label of the host")
		}
		host, err := o.host()
		if err != nil {
			return "", err
		}
		return labelOf(host, strings.ToLower(prefix), strings.ToLower(suffix))
	case "key":
		source, name, _ := strings.Cut(from, ":")
		if name == "" || source != "header" && source != "cookie" {
			return "", malformedAt("tenant", "must be key:header:Header or key:cookie:Cookie")
		}
		key, err := valueOf(r, source, name)
		if err != nil {
			return "", err
		}
		return a.tenantOfKey(who, withoutScheme(key))
	}
	return text, nil
}

// labelOf returns the part of a host name between prefix and suffix, in lower case.
func labelOf(host, prefix, suffix string) (string, error) {
	name := strings.ToLower(host)
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		name = name[:i]
	}
	label, ok := strings.CutPrefix(strings.TrimSuffix(name, "."), prefix)
	if ok {
		label, ok = strings.CutSuffix(label, suffix)
	}
	if !ok || label == "" || strings.Contains(label, ".") {
		return "", problem.New(problem.NotFound, "no tenant has this host")
	}
	return label, nil
}

// tenantOfKey returns the tenant that has a key with this token and the scope identify.
func (a *API) tenantOfKey(who Caller, token string) (string, error) {
	if len(token) < tenants.MinCustomerKey || len(token) > tenants.MaxCustomerKey {
		return "", errCustomerKey
	}
	key, ok := who.snapshot.Key(tenants.HashToken(token))
	if !ok || key.Subject == nil || !key.Scopes.Has(tenants.ScopeIdentify) || !key.Valid(a.cfg.Now().UnixMicro()) {
		return "", errCustomerKey
	}
	key.Use(a.cfg.Now())
	return key.Subject.TenantID, nil
}

// withoutScheme removes the scheme Bearer from the start of a header value.
func withoutScheme(text string) string {
	const scheme = "Bearer "
	if len(text) > len(scheme) && strings.EqualFold(text[:len(scheme)], scheme) {
		return text[len(scheme):]
	}
	return text
}
