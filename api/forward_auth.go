package api

import (
	"cmp"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// forwardAuthPath is the path of forward authentication: before a proxy forwards a request, it asks
// here whether it may. Every method is allowed, and there is no body. If the path of a call is
// longer, its rest is the path of the original request.
const forwardAuthPath = "/v1/forward-auth"

// IsForwardAuth reports whether a path belongs to forward authentication.
func IsForwardAuth(path string) bool {
	rest, found := strings.CutPrefix(path, forwardAuthPath)
	return found && (rest == "" || rest[0] == '/')
}

// A forwarding is a set of headers in which a proxy describes the original request.
type forwarding struct{ method, uri, host string }

// forwardings holds the values of the query parameter headers. The operator sets this parameter in
// the configuration of the proxy. The API reads only the headers that the parameter selects,
// because the proxy sets only these. The proxy passes on all other headers as its client sent them.
var forwardings = map[string]forwarding{
	"forwarded": {"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"},  // Traefik, Caddy
	"original":  {"X-Original-Method", "X-Original-Uri", "X-Original-Host"},     // nginx, HAProxy
	"kong":      {"X-Forwarded-Method", "X-Forwarded-Path", "X-Forwarded-Host"}, // Kong
}

// errUntrustedProxy is the error for a request that does not come from a trusted proxy. An untrusted sender could
// invent the original request.
var errUntrustedProxy = problem.WithCode(problem.Forbidden, "untrusted_proxy",
	"forward-auth needs a trusted proxy: add the network of the proxy to HEADGATE_TRUSTED_PROXIES")

// errClientQuery is the error if the query has no options. The likely cause is a proxy that sends
// the query of its client instead. Caddy does so with rewrite if the new address has no question
// mark.
var errClientQuery = malformedAt("headers",
	"the query is that of the client: give the proxy an address with options, such as /v1/forward-auth?headers=forwarded")

// forwardAuth is GET /v1/forward-auth, and the same path with any other method. All its options
// are in the query, which the configuration of the proxy fixes. A client cannot choose the
// tenant, the cost, the mode, the idempotency key or the lease by a header.
func (a *API) forwardAuth(w http.ResponseWriter, r *http.Request, who caller) error {
	option := r.URL.Query().Get
	headers, known := forwardings[cmp.Or(option("headers"), "forwarded")]
	host := func() (string, error) { return oneHeader(r, headers.host) }
	return a.authForwarded(w, r, who, answerForm{}, original{option: option, host: host, read: func(s *scratch) error {
		if !known {
			return malformedAt("headers", "must be forwarded, original or kong")
		}
		method, err := oneHeader(r, headers.method)
		if err != nil {
			return err
		}
		uri, err := oneHeader(r, headers.uri)
		if err != nil {
			return err
		}
		if _, query, _ := strings.Cut(uri, "?"); query != "" && query == r.URL.RawQuery {
			return errClientQuery
		}
		return s.original(method, uri, headers.method, headers.uri)
	}})
}

// forwardAuthBelow serves proxies that keep the method and append the original path to
// forwardAuthPath, as Envoy's filter ext_authz does. The query comes from the client, so the API
// reads no options from it. If the status is 500 or more, Envoy applies failure_mode_allow, which
// could override a denial of the failure mode closed. With clientErrors, such a denial has the
// status 429.
func (a *API) forwardAuthBelow(w http.ResponseWriter, r *http.Request, who caller) error {
	none := func(string) string { return "" }
	return a.authForwarded(w, r, who, answerForm{clientErrors: true}, original{option: none, read: func(s *scratch) error {
		return s.original(r.Method, strings.TrimPrefix(r.URL.EscapedPath(), forwardAuthPath), "the method", "the path")
	}})
}

// An original describes the request that a client sent to a gateway, and holds the options that the
// gateway sent.
type original struct {
	option func(name string) string      // returns an option by its name, or ""
	host   func() (host string, _ error) // returns the host, maybe with a port; called only if an option needs it
	read   func(*scratch) error          // sets the method and the path of the check
}

// authForwarded decides the check of a forwarded request and writes the response. If the node is
// overloaded, it closes the connection without a response. A gateway treats a closed connection as
// a node that is down, and then applies its own failure mode. It would treat any response as a
// decision.
func (a *API) authForwarded(w http.ResponseWriter, r *http.Request, who caller, form answerForm, o original) error {
	if a.cfg.TrustedProxy == nil || !a.cfg.TrustedProxy(r) {
		return errUntrustedProxy
	}
	var err error
	if form.denyStatus, err = denyStatus(o.option("deny_status")); err != nil {
		return err
	}
	switch o.option("body") {
	case "", "always":
	case "denied":
		form.emptyIfAllowed = true
	default:
		return malformedAt("body", "must be always or denied")
	}
	return a.decideForwarded(r, Caller{who}, enforcement.WireForwardAuth, o, func(s *scratch) {
		if s.decision.Reason == enforcement.ReasonOverloaded {
			panic(http.ErrAbortHandler)
		}
		a.writeDecision(w, s, form)
	})
}

// decideForwarded decides the check of a forwarded request, and calls use with a scratch that holds
// the decision. If the node is overloaded, the decision is a denial with the reason overloaded.
func (a *API) decideForwarded(r *http.Request, who Caller, wire enforcement.Wire, o original, use func(*scratch)) error {
	s := scratches.Get().(*scratch)
	defer s.release()
	s.check = enforcement.Check{Cost: 1, DefaultCost: true, Attributes: s.attributes[:0], Wire: wire}
	if err := o.read(s); err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(a.cfg.ClientAddress(r)); err == nil {
		if err := s.check.AddAttribute("ip", ip.String()); err != nil {
			return malformedAt("X-Forwarded-For", err.Error())
		}
	}
	if err := s.attributesFrom(r, o.option("attributes"), &claims{api: a, r: r, from: o.option("jwt")}); err != nil {
		return err
	}
	if err := s.costFrom(r, o.option("cost")); err != nil {
		return err
	}
	if err := s.repetitionFrom(r, o.option); err != nil {
		return err
	}
	tenant, err := a.tenantFrom(r, who, o)
	if err != nil {
		return err
	}
	subject, err := who.Subject(tenant, &s.check)
	if err != nil {
		return err
	}
	if a.decideOne(r.Context(), subject, s) != nil {
		overloaded(&s.decision, subject, &s.check)
	}
	if err := keyRefused(&s.decision); err != nil {
		return err
	}
	use(s)
	return nil
}

// denyStatus returns the status that the option deny_status selects, or 0.
func denyStatus(text string) (int, error) {
	switch text {
	case "":
		return 0, nil
	case "401", "403", "429":
		return strconv.Atoi(text)
	}
	return 0, malformedAt("deny_status", "must be 401, 403 or 429")
}

// original sets the method and the path of the original request in s.check. methodPointer and
// uriPointer name the headers or parts that method and uri come from, for an error.
func (s *scratch) original(method, uri, methodPointer, uriPointer string) error {
	if err := s.check.SetMethod(method); err != nil {
		return malformedAt(methodPointer, err.Error())
	}
	if err := s.check.SetPath(uri); err != nil {
		return malformedAt(uriPointer, err.Error())
	}
	return nil
}

// oneHeader returns the value of a header that the proxy must send exactly once.
func oneHeader(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	if len(values) != 1 || values[0] == "" {
		return "", malformedAt(name, "is required once: the proxy must set it")
	}
	return values[0], nil
}

// attributesFrom adds the attributes that the option attributes lists: name:header:Header,
// name:cookie:Cookie or name:claim:Claim, separated by commas. If the request does not have the
// header, cookie or claim, there is no attribute.
func (s *scratch) attributesFrom(r *http.Request, list string, jwt *claims) error {
	for item := range strings.SplitSeq(list, ",") {
		if list == "" {
			break
		}
		name, source, _ := strings.Cut(item, ":")
		kind, from, _ := strings.Cut(source, ":")
		if from == "" || name == "ip" || kind != "header" && kind != "cookie" && kind != "claim" {
			return malformedAt("attributes",
				"must be name:header:Header, name:cookie:Cookie or name:claim:Claim, separated by commas; ip is the client's address")
		}
		var value string
		var err error
		if kind == "claim" {
			value, err = jwt.text(from)
		} else {
			value, err = valueOf(r, kind, from)
		}
		if err != nil {
			return err
		}
		for _, a := range s.check.Attributes {
			if a.Name == name {
				return malformedAt("attributes", "has the attribute "+name+" twice")
			}
		}
		if value == "" {
			continue
		}
		if err := s.check.AddAttribute(name, value); err != nil {
			return malformedAt(from, err.Error())
		}
	}
	return nil
}

// valueOf returns the value of a header or cookie, or "" if the request has none. If there are two values, it returns
// an error, because Headgate and the upstream server could use different ones.
func valueOf(r *http.Request, kind, name string) (string, error) {
	var values []string
	if kind == "header" {
		values = r.Header.Values(name)
	} else {
		for _, c := range r.CookiesNamed(name) {
			values = append(values, c.Value)
		}
	}
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", malformedAt(name, "is sent more than once")
}

// costFrom sets the cost from the option cost: a number, or header:Header for a header that the proxy sets.
func (s *scratch) costFrom(r *http.Request, text string) (err error) {
	if text == "" {
		return nil
	}
	at := "cost"
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		at = name
		if text, err = oneHeader(r, name); err != nil {
			return err
		}
	}
	cost, err := strconv.ParseInt(text, 10, 64)
	if err != nil || cost < 0 || cost > enforcement.MaxCost {
		return malformedAt(at, "must be a whole number from 0 to "+strconv.Itoa(enforcement.MaxCost))
	}
	s.check.Cost, s.check.DefaultCost = cost, false
	return nil
}

// repetitionFrom sets the idempotency key, the lease and whether the check is refundable from the
// options idempotency, lease, lease_ttl_ms and refundable. The key and the ID of the lease differ
// from request to request, so they can only come from a header that the proxy sets.
func (s *scratch) repetitionFrom(r *http.Request, option func(string) string) error {
	key, at, err := optionHeader(r, "idempotency", option("idempotency"))
	if err != nil {
		return err
	}
	if validKey(key) != nil {
		return malformedAt(at, "must be 1 to 255 visible ASCII characters")
	}
	s.check.IdempotencyKey = key
	lease, at, err := optionHeader(r, "lease", option("lease"))
	if err != nil {
		return err
	}
	if lease != "" {
		if err := s.check.SetLeaseID(lease); err != nil {
			return malformedAt(at, err.Error())
		}
	}
	if text := option("lease_ttl_ms"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if most := enforcement.MaxLeaseTTL.Milliseconds(); err != nil || ms < 1 || ms > most {
			return malformedAt("lease_ttl_ms", "must be a whole number of milliseconds from 1 to "+strconv.FormatInt(most, 10))
		}
		s.check.LeaseTTL = time.Duration(ms) * time.Millisecond
	}
	switch option("refundable") {
	case "", "false":
	case "true":
		s.check.Refundable = true
	default:
		return malformedAt("refundable", "must be true or false")
	}
	return nil
}

// optionHeader returns the value of the header that an option names as header:Header, and the name of
// the header. The value is "" if the option is not set.
func optionHeader(r *http.Request, option, text string) (value, name string, err error) {
	if text == "" {
		return "", "", nil
	}
	name, ok := strings.CutPrefix(text, "header:")
	if !ok || name == "" {
		return "", "", malformedAt(option, "must be header:Header, for a header that the proxy sets")
	}
	value, err = oneHeader(r, name)
	return value, name, err
}
