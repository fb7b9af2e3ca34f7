//go:build !quick

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpctls "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/servertest"
)

var envoyAddr = regexp.MustCompile(`serving the gRPC services of Envoy".*"addr":"([^"]+)"`)

// envoyPolicies has a policy of REST routes, and policies of descriptors as headgate import envoy writes them.
const envoyPolicies = `[
	{"slug": "login", "match": {"path": "/v1/login", "methods": ["POST"]}, "count_by": ["ip"], "limits": [{"algorithm": "fixed_window", "quota": 3, "window": "1h", "warn_at": [60]}]},
	{"slug": "address", "match": {"path": "/ratelimit/*"}, "count_by": ["ip"], "missing": "skip", "limits": [{"algorithm": "fixed_window", "quota": 5, "window": "2m"}]},
	{"slug": "number", "match": {"attributes": {"message_type": "marketing"}}, "count_by": ["to_number"], "missing": "skip",
	 "limits": [{"name": "day", "algorithm": "fixed_window", "quota": 4, "window": "1d", "anchor": "clock"}]},
	{"slug": "user", "match": {"path": "/v1/items"}, "count_by": ["user"], "missing": "skip", "limits": [{"algorithm": "token_bucket", "quota": 10, "window": "1h"}]}
]`

// An envoyNode is a node that serves the gRPC services of Envoy.
type envoyNode struct {
	*running
	addr, key string // key of the tenant acme
}

// startEnvoy starts a node with the tenants acme and globex.
func startEnvoy(t testing.TB, settings map[string]string) envoyNode {
	t.Helper()
	all := map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
		"HEADGATE_ENVOY_ADDR": "127.0.0.1:0",
	}
	maps.Copy(all, settings)
	node := start(t, all)
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+envoyPolicies+`}}`).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	for _, name := range []string{"acme", "globex"} {
		call(t, bootstrap, "POST", node.origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"name": %[1]q, "plan": "pro"}}`, name)).want(t, 201)
	}
	var created struct{ Token string }
	call(t, bootstrap, "POST", node.origin+"/v1/tenants/acme/keys", `{"name": "envoy", "scopes": ["check"]}`).want(t, 201).into(t, &created)
	return envoyNode{node, node.await(node.logs, envoyAddr)[1], created.Token}
}

func dialEnvoy(t testing.TB, addr string, transport grpctls.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// with returns a context with an API key, and with other metadata.
func with(ctx context.Context, key string, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append([]string{"authorization", "Bearer " + key}, pairs...)...)
}

// entries returns a descriptor with pairs of a key and a value.
func entries(pairs ...string) *descriptorv3.RateLimitDescriptor {
	d := &descriptorv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func headersOf(values []*corev3.HeaderValue) map[string]string {
	all := map[string]string{}
	for _, v := range values {
		all[v.GetKey()] = v.GetValue()
	}
	return all
}

// Descriptors are checks of the tenant: by a path of REST or without one, with one counter for both wires.
func TestEnvoyRateLimits(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	service, ctx := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials())), with(t.Context(), node.key)
	ask := func(r *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
		t.Helper()
		answer, err := service.ShouldRateLimit(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	route := &ratelimitv3.RateLimitRequest{Domain: "any", Descriptors: []*descriptorv3.RateLimitDescriptor{
		entries(":path", "/v1/login", ":method", "POST", "remote_address", "203.0.113.1"),
	}}
	for i := range uint32(2) {
		a := ask(route)
		l := a.GetStatuses()[0]
		if a.GetOverallCode() != ratelimitv3.RateLimitResponse_OK || l.GetLimitRemaining() != 2-i || l.GetCurrentLimit().GetRequestsPerUnit() != 3 ||
			l.GetCurrentLimit().GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_HOUR || l.GetCurrentLimit().GetName() != "login" ||
			l.GetDurationUntilReset().AsDuration() <= 0 || l.GetDurationUntilReset().AsDuration() > time.Hour {
			t.Fatalf("call %d: %v", i, a)
		}
		if near := a.GetDynamicMetadata().AsMap()["near_limit"]; (near != nil) != (i == 1) || i == 1 && near != float64(60) {
			t.Errorf("call %d: near_limit %v", i, near)
		}
		h := headersOf(a.GetResponseHeadersToAdd())
		if h["RateLimit-Policy"] != `"login";q=3;w=3600` || !strings.HasPrefix(h["RateLimit"], fmt.Sprintf(`"login";r=%d;t=`, 2-i)) || len(h) != 2 || len(a.GetRawBody()) != 0 {
			t.Fatalf("call %d: headers %v", i, h)
		}
	}
	call(t, node.key, "POST", node.origin+"/v1/check", `{"method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.1"}}`).want(t, 200)
	denied := ask(route)
	h := headersOf(denied.GetResponseHeadersToAdd())
	var body struct {
		Kind, Code string
		DecisionID string `json:"decision_id"`
	}
	if err := json.Unmarshal(denied.GetRawBody(), &body); err != nil {
		t.Fatal(err)
	}
	ids := denied.GetDynamicMetadata().AsMap()["decision_ids"].([]any)
	if denied.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || h["Retry-After"] == "" || h["Content-Type"] != "application/problem+json" ||
		body.Kind != "denial" || body.DecisionID == "" || !slices.Equal(ids, []any{body.DecisionID}) || denied.GetDynamicMetadata().AsMap()["plan"] != "pro" {
		t.Fatalf("the fourth: %v %v", denied, body)
	}
	call(t, bootstrap, "GET", node.origin+"/v1/explain/"+body.DecisionID, "").want(t, 200)

	// Each descriptor is a separate check. The headers are those of the limit that is closest
	// to exhaustion.
	both := &ratelimitv3.RateLimitRequest{Domain: "messages", Descriptors: []*descriptorv3.RateLimitDescriptor{
		entries("message_type", "marketing", "to_number", "1"), entries("remote_address", "2001:db8::1"),
	}}
	for i := range uint32(4) {
		a := ask(both)
		if s := a.GetStatuses(); a.GetOverallCode() != ratelimitv3.RateLimitResponse_OK || s[0].GetLimitRemaining() != 3-i || s[1].GetLimitRemaining() != 4-i ||
			s[1].GetCurrentLimit().GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_MINUTE || s[1].GetCurrentLimit().GetUnitMultiplier().GetValue() != 2 {
			t.Fatalf("both, call %d: %v", i, a)
		}
	}
	a := ask(both)
	if s := a.GetStatuses(); a.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || s[0].GetCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT ||
		s[1].GetCode() != ratelimitv3.RateLimitResponse_OK || s[1].GetLimitRemaining() != 0 || !strings.Contains(headersOf(a.GetResponseHeadersToAdd())["RateLimit"], `"number"`) {
		t.Fatalf("both, call 5: %v", a)
	}

	// The cost is hits_addend of the descriptor, or of the request, or 1. A descriptor's 0 charges nothing.
	cost := &ratelimitv3.RateLimitRequest{Domain: "x", HitsAddend: 3, Descriptors: []*descriptorv3.RateLimitDescriptor{entries("remote_address", "203.0.113.3")}}
	if a := ask(cost); a.GetStatuses()[0].GetLimitRemaining() != 2 {
		t.Errorf("hits_addend of the request: %v", a)
	}
	for _, hits := range []uint64{0, 2} {
		cost.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		if a := ask(cost); a.GetStatuses()[0].GetLimitRemaining() != uint32(2-hits) || a.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
			t.Errorf("hits_addend %d of the descriptor: %v", hits, a)
		}
	}
}

// Descriptors with an idempotency key are charged once. In one call, the same key protects each of them.
func TestEnvoyRepeatedDescriptors(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	service, ctx := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials())), with(t.Context(), node.key)
	ask := func(second string) (*ratelimitv3.RateLimitResponse, error) {
		return service.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "messages", Descriptors: []*descriptorv3.RateLimitDescriptor{
			entries("message_type", "marketing", "to_number", "1", ":idempotency-key", "k1"), entries("remote_address", second, ":idempotency-key", "k1"),
		}})
	}
	for i := range 3 {
		a, err := ask("2001:db8::1")
		if err != nil {
			t.Fatal(err)
		}
		if s := a.GetStatuses(); s[0].GetLimitRemaining() != 3 || s[1].GetLimitRemaining() != 4 || a.GetDynamicMetadata().GetFields()["replayed"].GetBoolValue() != (i > 0) {
			t.Errorf("call %d: %v", i, a)
		}
	}
	// The key can come from a client. An error would make Envoy apply its failure mode.
	a, err := ask("2001:db8::2")
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Detail string }
	s := a.GetStatuses()
	if err := json.Unmarshal(a.GetRawBody(), &body); err != nil || a.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT ||
		s[0].GetCode() != ratelimitv3.RateLimitResponse_OK || s[1].GetCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT ||
		!strings.HasPrefix(body.Detail, "descriptors[1]: this Idempotency-Key belongs to another check") ||
		!strings.HasSuffix(body.Detail, "this check was not charged; the other descriptors were decided, and each one that passed was charged") {
		t.Errorf("another address with the key: %v, %v", a, err)
	}
}

// With an operator key, the domain or an entry names the tenant. A domain without a tenant is not limited, as in
// envoyproxy/ratelimit. A tenant's key decides for its tenant only.
func TestEnvoyDomains(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, map[string]string{"HEADGATE_ENVOY_DOMAINS": "edge=globex, gateway=@customer"})
	service := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials()))
	for _, c := range []struct {
		key, domain string
		pairs       []string
		tenant      string // "" if the request is not limited
		code        codes.Code
	}{
		{bootstrap, "acme", nil, "acme", codes.OK},
		{bootstrap, "edge", nil, "globex", codes.OK},
		{bootstrap, "gateway", []string{"customer", "globex"}, "globex", codes.OK},
		{bootstrap, "gateway", nil, "", codes.OK},
		{bootstrap, "unknown", nil, "", codes.OK},
		{node.key, "globex", nil, "acme", codes.OK},
		{node.key, "gateway", []string{"customer", "globex"}, "acme", codes.OK},
	} {
		a, err := service.ShouldRateLimit(with(t.Context(), c.key), &ratelimitv3.RateLimitRequest{
			Domain: c.domain, Descriptors: []*descriptorv3.RateLimitDescriptor{entries(append([]string{"remote_address", "203.0.113.1"}, c.pairs...)...)},
		})
		tenant, _ := a.GetDynamicMetadata().AsMap()["tenant"].(string)
		if status.Code(err) != c.code || tenant != c.tenant || a.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%s %v: tenant %q, %v; want %q, %v", c.domain, c.pairs, tenant, err, c.tenant, c.code)
		}
		if limited := len(a.GetStatuses()) == 1 && a.GetStatuses()[0].GetCurrentLimit() != nil; limited != (c.tenant != "") {
			t.Errorf("%s %v: %v", c.domain, c.pairs, a)
		}
	}
	// The value of the entry can come from a client.
	a, err := service.ShouldRateLimit(with(t.Context(), bootstrap), &ratelimitv3.RateLimitRequest{
		Domain: "gateway", Descriptors: []*descriptorv3.RateLimitDescriptor{entries("customer", "unknown")},
	})
	if err != nil || a.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || !strings.Contains(string(a.GetRawBody()), "no such tenant") {
		t.Errorf("an unknown tenant: %v, %v", a, err)
	}
}

// A call without an API key uses the key in HEADGATE_ENVOY_KEY. If a call has a key, only that
// key is used.
func TestEnvoyKey(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, map[string]string{"HEADGATE_ENVOY_KEY": bootstrap})
	service := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, node.addr, insecure.NewCredentials()))
	request := &ratelimitv3.RateLimitRequest{Domain: "globex", Descriptors: []*descriptorv3.RateLimitDescriptor{
		entries("message_type", "marketing", "to_number", "1"),
	}}
	for i := range uint32(5) {
		a, err := service.ShouldRateLimit(t.Context(), request)
		if err != nil || (a.GetOverallCode() == ratelimitv3.RateLimitResponse_OK) != (i < 4) {
			t.Errorf("call %d without a key: %v, %v", i, a, err)
		}
	}
	// The key of acme ignores the domain, and its counters are other ones.
	if a, err := service.ShouldRateLimit(with(t.Context(), node.key), request); err != nil || a.GetStatuses()[0].GetLimitRemaining() != 3 {
		t.Errorf("with a key: %v, %v", a, err)
	}
	for name, ctx := range map[string]context.Context{
		"a wrong key": with(t.Context(), "hg_tn_wrong"),
		"two keys":    metadata.AppendToOutgoingContext(with(t.Context(), node.key), "authorization", "Bearer "+node.key),
		"no scheme":   metadata.AppendToOutgoingContext(t.Context(), "authorization", ""),
	} {
		if a, err := service.ShouldRateLimit(ctx, request); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

// A wrong call has an error that names the field, and charges nothing.
func TestEnvoyRefuses(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	conn := dialEnvoy(t, node.addr, insecure.NewCredentials())
	service := ratelimitv3.NewRateLimitServiceClient(conn)
	good := entries("remote_address", "203.0.113.1")
	hits := entries("remote_address", "203.0.113.1")
	hits.HitsAddend = wrapperspb.UInt64(1 << 40)
	limit, negative := entries("a", "b"), entries("a", "b")
	limit.Limit, negative.IsNegativeHits = &descriptorv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}, true
	many := make([]*descriptorv3.RateLimitDescriptor, 101)
	for i := range many {
		many[i] = good
	}
	for _, c := range []struct {
		domain      string
		descriptors []*descriptorv3.RateLimitDescriptor
		want        string
	}{
		{"", []*descriptorv3.RateLimitDescriptor{good}, "domain: is required"},
		{"acme", nil, "descriptors: must be 1 to 100"},
		{"acme", many, "descriptors: must be 1 to 100"},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries("remote_address", "nonsense")}, `descriptors[1].entries[0]: "remote_address"`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries("", "x")}, `descriptors[1].entries[0]: "" has a name that is empty`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries("a", "1", "a", "2")}, `descriptors[1].entries[1]: "a" is sent twice`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":path", "/a", ":path", "/b")}, `descriptors[1].entries[1]: ":path" is sent twice`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":idempotency-key", "a", ":idempotency-key", "a")}, `":idempotency-key" is sent twice`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries("ip", "192.0.2.1", "remote_address", "192.0.2.1")}, `"remote_address" is sent twice`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":path", "nonsense")}, `descriptors[1].entries[0]: ":path"`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":method", "get")}, `descriptors[1].entries[0]: ":method"`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries("a", strings.Repeat("x", 2000))}, `descriptors[1].entries[0]: "a" must be at most 1024`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, hits}, "descriptors[1].hits_addend: must be at most"},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, limit}, "descriptors[1].limit.unit: must be"},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, negative}, "descriptors[1].is_negative_hits: is not supported"},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":idempotency-key", "")}, `descriptors[1].entries[0]: ":idempotency-key" must be 1 to 255`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":lease", "")}, `descriptors[1].entries[0]: ":lease" must be 1 to 128`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":lease-ttl-ms", "1m")}, `descriptors[1].entries[0]: ":lease-ttl-ms" must be a whole number`},
		{"acme", []*descriptorv3.RateLimitDescriptor{good, entries(":refundable", "yes")}, `descriptors[1].entries[0]: ":refundable" must be true`},
	} {
		a, err := service.ShouldRateLimit(with(t.Context(), node.key), &ratelimitv3.RateLimitRequest{Domain: c.domain, Descriptors: c.descriptors})
		ofClient := strings.Contains(c.want, ".entries[") && !strings.Contains(c.want, "is sent twice") || strings.Contains(c.want, "hits_addend")
		if !ofClient {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			continue
		}
		// A client of Envoy can send such a value. An error would make Envoy apply its failure mode.
		var body struct{ Detail string }
		faulty := a.GetStatuses()
		if len(faulty) != 2 {
			t.Errorf("%v, %v, want %q", err, a, c.want)
			continue
		}
		if err := errors.Join(err, json.Unmarshal(a.GetRawBody(), &body)); err != nil || a.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT ||
			faulty[1].GetCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || !strings.Contains(body.Detail, c.want) {
			t.Errorf("%v, %v, want %q", err, a, c.want)
		}
	}
	for _, ctx := range []context.Context{
		t.Context(), with(t.Context(), "hg_tn_nonsense"), metadata.AppendToOutgoingContext(t.Context(), "authorization", node.key),
		metadata.AppendToOutgoingContext(with(t.Context(), node.key), "authorization", "Bearer "+node.key),
	} {
		_, err := service.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "acme", Descriptors: []*descriptorv3.RateLimitDescriptor{good}})
		if status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), "nonsense") {
			t.Errorf("a wrong key: %v", err)
		}
	}
	auth := authv3.NewAuthorizationClient(conn)
	for _, c := range []struct {
		request *authv3.CheckRequest
		ctx     context.Context
		want    string
	}{
		{&authv3.CheckRequest{}, with(t.Context(), node.key), "attributes.request.http: is required"},
		{httpRequest("", "/v1/items"), with(t.Context(), node.key), "method"},
		{httpRequest("GET", "nonsense"), with(t.Context(), node.key), "path"},
		{httpRequest("GET", "/v1/items"), with(t.Context(), node.key, "headgate-attributes", "user"), "attributes"},
		{httpRequest("GET", "/v1/items"), with(t.Context(), node.key, "headgate-cost", "-1"), "cost"},
		{httpRequest("GET", "/v1/items"), with(t.Context(), node.key, "headgate-lease-ttl-ms", "5000"), `"headgate-lease-ttl-ms" is not an option`},
		{httpRequest("GET", "/v1/items"), with(t.Context(), bootstrap), "is required with an operator key"},
		{httpRequest("GET", "/v1/items"), with(t.Context(), bootstrap, "headgate-tenant", "header:X-Tenant"), `"X-Tenant","detail":"is required once`},
	} {
		a, err := auth.Check(c.ctx, c.request)
		if c.request.GetAttributes() == nil || strings.HasSuffix(c.want, "is not an option") { // of the configuration of Envoy
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		} else if d := a.GetDeniedResponse(); err != nil || d.GetStatus().GetCode() != 400 || !strings.Contains(d.GetBody(), c.want) {
			t.Errorf("%v, %v, want %q", a, err, c.want)
		}
	}
	a, err := service.ShouldRateLimit(with(t.Context(), node.key), &ratelimitv3.RateLimitRequest{Domain: "acme", Descriptors: []*descriptorv3.RateLimitDescriptor{good}})
	if err != nil || a.GetStatuses()[0].GetLimitRemaining() != 4 {
		t.Errorf("after the errors: %v, %v", a, err)
	}
}

// httpRequest returns a request of ext_authz with pairs of a header and a value.
func httpRequest(method, path string, pairs ...string) *authv3.CheckRequest {
	headers := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		headers[pairs[i]] = pairs[i+1]
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "203.0.113.9", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: method, Path: path, Headers: headers}},
	}}
}

// ext_authz returns the same decisions as /v1/check. Its options come from the gRPC metadata or
// the context extensions, and never from headers of the client.
func TestEnvoyAuthorization(t *testing.T) {
	t.Parallel()
	node := startEnvoy(t, nil)
	service := authv3.NewAuthorizationClient(dialEnvoy(t, node.addr, insecure.NewCredentials()))
	ask := func(ctx context.Context, r *authv3.CheckRequest) *authv3.CheckResponse {
		t.Helper()
		a, err := service.Check(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	hostile := []string{
		"x-forwarded-for", "198.51.100.1", "headgate-tenant", "globex", "headgate-cost", "0", "headgate-attributes", "ip:header:x-ip", "authorization", "Bearer x",
		"x-headgate-mode", "peek", "tenant", "globex", "cost", "0",
		"idempotency-key", "k1", "headgate-idempotency", "header:idempotency-key", "idempotency", "header:idempotency-key",
		"headgate-lease", "header:x-lease", "lease", "l1", "x-lease", "l1", "headgate-refundable", "true",
	}
	for i := range 3 {
		a := ask(with(t.Context(), node.key), httpRequest("POST", "/v1/login?cost=0&tenant=globex", hostile...))
		fields := a.GetDynamicMetadata().AsMap()
		if a.GetStatus().GetCode() != 0 || a.GetOkResponse() == nil || fields["tenant"] != "acme" || fields["plan"] != "pro" || fields["decision_id"] == "" {
			t.Fatalf("check %d: %v", i, a)
		}
		limits := fields["limits"].([]any)
		if len(limits) != 1 || limits[0].(map[string]any)["remaining"] != float64(2-i) {
			t.Fatalf("check %d: the limits in the metadata are %v", i, limits)
		}
		if h := a.GetOkResponse().GetResponseHeadersToAdd(); len(h) != 2 || h[0].GetHeader().GetKey() != "RateLimit" {
			t.Fatalf("check %d: headers %v", i, h)
		}
	}
	denied := ask(with(t.Context(), node.key), httpRequest("POST", "/v1/login", hostile...))
	if r := denied.GetDeniedResponse(); denied.GetStatus().GetCode() != int32(codes.PermissionDenied) || r.GetStatus().GetCode() != 429 || !strings.Contains(r.GetBody(), `"kind":"denial"`) {
		t.Fatalf("the fourth: %v", denied)
	}

	// Options. A context extension of the route wins.
	ctx := with(t.Context(), bootstrap, "headgate-tenant", "header:x-tenant", "headgate-attributes", "user:header:x-user", "headgate-cost", "4")
	r := httpRequest("GET", "/v1/items", "x-tenant", "globex", "x-user", "u1")
	remaining := func(a *authv3.CheckResponse) any {
		t.Helper()
		fields := a.GetDynamicMetadata().AsMap()
		if fields["tenant"] != "globex" {
			t.Fatalf("tenant %v", fields)
		}
		return fields["limits"].([]any)[0].(map[string]any)["remaining"]
	}
	if left := remaining(ask(ctx, r)); left != float64(6) {
		t.Errorf("%v are left, want 6", left)
	}
	r.Attributes.ContextExtensions = map[string]string{"cost": "1"}
	if left := remaining(ask(ctx, r)); left != float64(5) {
		t.Errorf("%v are left, want 5", left)
	}
	a, err := service.Check(ctx, httpRequest("GET", "/v1/items", "x-tenant", "unknown"))
	if err != nil || a.GetDeniedResponse().GetStatus().GetCode() != 404 {
		t.Errorf("an unknown tenant: %v, %v", a, err)
	}
}

// Many concurrent calls admit exactly the quota. Health and reflection answer without a key.
func TestEnvoyExactAndHealth(t *testing.T) {
	t.Parallel()
	redis := servertest.StartRedis(t)
	node := startEnvoy(t, map[string]string{"HEADGATE_REDIS_URL": redis.URL()})
	conn := dialEnvoy(t, node.addr, insecure.NewCredentials())
	service := ratelimitv3.NewRateLimitServiceClient(conn)
	var admitted, failed atomic.Int64
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for range 3 {
				a, err := service.ShouldRateLimit(with(t.Context(), node.key), &ratelimitv3.RateLimitRequest{
					Domain: "x", Descriptors: []*descriptorv3.RateLimitDescriptor{entries("remote_address", "203.0.113.1")},
				})
				switch {
				case err != nil:
					failed.Add(1)
				case a.GetOverallCode() == ratelimitv3.RateLimitResponse_OK:
					admitted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if admitted.Load() != 5 || failed.Load() != 0 {
		t.Errorf("%d of 60 admitted, %d failed; want 5 and 0", admitted.Load(), failed.Load())
	}
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if list, err := stream.Recv(); err != nil || !strings.Contains(list.String(), "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("reflection: %v, %v", list, err)
	}
}

// With HEADGATE_ENVOY_CLIENT_CA_FILE, a call needs a client certificate that these authorities signed, and a key.
func TestEnvoyMutualTLS(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t, t.TempDir(), 1)
	otherCert, otherKey := writeCertificate(t, t.TempDir(), 2)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_ENVOY_ADDR": "127.0.0.1:0",
		"HEADGATE_TLS_CERT_FILE": cert, "HEADGATE_TLS_KEY_FILE": key, "HEADGATE_ENVOY_CLIENT_CA_FILE": cert,
	})
	addr := node.await(node.logs, envoyAddr)[1]
	for name, c := range map[string]struct {
		cert, key string
		code      codes.Code
	}{
		"ours": {cert, key, codes.OK}, "another": {otherCert, otherKey, codes.Unavailable}, "none": {"", "", codes.Unavailable},
	} {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
		if c.cert != "" {
			own, err := tls.LoadX509KeyPair(c.cert, c.key)
			if err != nil {
				t.Fatal(err)
			}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
		}
		service := ratelimitv3.NewRateLimitServiceClient(dialEnvoy(t, addr, grpctls.NewTLS(config)))
		_, err := service.ShouldRateLimit(with(t.Context(), bootstrap), &ratelimitv3.RateLimitRequest{
			Domain: "x", Descriptors: []*descriptorv3.RateLimitDescriptor{entries("remote_address", "203.0.113.1")},
		})
		if status.Code(err) != c.code {
			t.Errorf("%s certificate: %v, want %v", name, err, c.code)
		}
	}
}

func TestEnvoySettings(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t, t.TempDir(), 1)
	for want, settings := range map[string]map[string]string{
		"HEADGATE_ENVOY_ADDR: ":                                  {"HEADGATE_ENVOY_ADDR": "nonsense"},
		`HEADGATE_ENVOY_DOMAINS: "edge" must be`:                 {"HEADGATE_ENVOY_DOMAINS": "edge"},
		`HEADGATE_ENVOY_DOMAINS: "edge=@" must be`:               {"HEADGATE_ENVOY_DOMAINS": "a=b,edge=@"},
		"HEADGATE_ENVOY_DOMAINS: has the domain a twice":         {"HEADGATE_ENVOY_DOMAINS": "a=b,a=c"},
		"HEADGATE_ENVOY_CLIENT_CA_FILE: needs HEADGATE_TLS_CERT": {"HEADGATE_ENVOY_CLIENT_CA_FILE": cert},
		"has no certificate in PEM":                              {"HEADGATE_TLS_CERT_FILE": cert, "HEADGATE_TLS_KEY_FILE": key, "HEADGATE_ENVOY_CLIENT_CA_FILE": key},
	} {
		err := (&program{getenv: func(name string) string { return settings[name] }, stdout: io.Discard, stderr: io.Discard}).run(t.Context(), []string{"serve"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
